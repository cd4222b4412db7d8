"""Field values: many readings in one call, each with its own error and type."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from pymon.sources.nvml.device import Device
from pymon.sources.nvml.library import AWAY, GONE, CallFailed, DriverAway, GpuGone

ALL_LINKS: Final = 0xFFFFFFFF  # scope of an NVLink field: the sum of all links (nvml.h)
Field = tuple[int, int]  # id, scope

POWER_AVERAGE, POWER_INSTANT = 185, 186
LIMITS: Final = {"min": 187, "max": 188, "default": 189, "enforced": 190}
ENERGY: Final = 83
MEMORY_TEMPERATURE: Final = 82
PCIE_REPLAYS, PCIE_TRANSMIT, PCIE_RECEIVE = 94, 197, 198
NVLINK_LINKS: Final = 91
NVLINK_TRANSMIT_KIB, NVLINK_RECEIVE_KIB = 138, 139
NVLINK_TRANSMIT, NVLINK_RECEIVE = 202, 204  # NVLink 5, bytes
NVLINK_ERRORS: Final = {
    "crc_flit": 38,
    "crc_data": 45,
    "replay": 52,
    "recovery": 59,
}  # of all links
NVLINK_LINK_ERRORS: Final = {"replay": 161, "recovery": 162, "crc": 163}  # of the link in the scope
REMAPPED: Final = {"corrected": 142, "uncorrected": 143}
REMAP_PENDING, REMAP_FAILURE = 144, 145
RECOVERY_ACTION: Final = 230
# Nanoseconds in which a reason held the clocks down.
CLOCKS_EVENTS: Final = {
    "sw_power_cap": 74,
    "thermal": 75,
    "sync_boost": 76,
    "board_limit": 77,
    "low_utilization": 78,
    "reliability": 79,
    "sw_thermal": 269,
    "hw_thermal": 270,
    "hw_power_brake": 271,
}
# Ids above 250 meant other things before: the headers of 575.51 and 580.65 have 251 to 253 for the reasons that
# 570 and 580.126 and later have at 269 to 271, and 256 to 273 for power smoothing.
RENUMBERED_FROM: Final = 251
RENUMBERED_SINCE: Final = (580, 126)

_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
_ABSENT = {"uiVal": 0xFFFFFFFF, "ulVal": 2**64 - 1, "ullVal": 2**64 - 1}  # NVML_VALUE_NOT_AVAILABLE
_NARROW = frozenset({1, 5, 6})
# Bytes in 32 bits wrap every 4 GiB, several times within a tick of a fast link: no total can be had from that.
_WIDE: Final = frozenset({PCIE_TRANSMIT, PCIE_RECEIVE, NVLINK_TRANSMIT, NVLINK_RECEIVE})


def known_to(driver_version: str, fields: Iterable[Field]) -> list[Field]:
    """Those whose ids mean with this driver what they mean here."""
    parts = [part for part in driver_version.split(".")[:2] if part.isdecimal()]
    renumbered = tuple(map(int, parts)) >= RENUMBERED_SINCE
    return [field for field in fields if field[0] < RENUMBERED_FROM or renumbered]


def read(device: Device, fields: Iterable[Field]) -> dict[Field, Any]:
    """The fields that the GPU tells, by id and scope. Raises DriverAway and GpuGone."""
    wanted = [field for field in fields if device.may_ask(field)]
    name = "nvmlDeviceGetFieldValues"
    values = device.ask_as(name, name, device.handle, wanted) if wanted else None
    found = {}
    for field, value in zip(wanted, values or (), strict=False):
        if value.nvmlReturn:
            _refused(device, field, value.nvmlReturn)
        elif field[0] in _WIDE and value.valueType in _NARROW:
            device.note(field, CallFailed("nvmlDeviceGetFieldValues", 3))
        elif (number := _number(value)) is not None:
            found[field] = number
    return found


def _refused(device: Device, field: Field, code: int) -> None:
    err = device.library.failure("nvmlDeviceGetFieldValues", code)
    if code in AWAY or code in GONE:
        assert isinstance(err, DriverAway | GpuGone)
        raise err
    device.note(field, err)


def _number(value: Any) -> float | int | None:
    member = _MEMBERS.get(value.valueType)
    if member is None:
        return None
    number: float | int = getattr(value.value, member)
    if number == _ABSENT.get(member) or not math.isfinite(number):
        return None
    return number

"""Field values: many readings in one call, each with its own error and type."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterable
from typing import Any, Final

import pynvml

from pymon.sources.nvml.device import Device
from pymon.sources.nvml.library import NOT_SUPPORTED, CallFailed, DriverAway, GpuGone

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

# nvmlFieldValue_t: id, scope, timestamp, latency, type of the value, return code, the value's eight bytes. Taken from
# memory as it is: nvidia-ml-py's own structures cost a microsecond for each member that is looked at.
_ASKED = struct.Struct("<II32x")
_ANSWER = struct.Struct("<24xIIQ")
_DOUBLE, _U32, _I64, _I32, _U16 = 0, 1, 4, 5, 6
_LONG = frozenset({2, 3})  # unsigned, of 64 bits
_ABSENT_U32, _ABSENT_U64 = 2**32 - 1, 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
_NARROW = frozenset({_U32, _I32, _U16})
# Bytes in 32 bits wrap every 4 GiB, several times within a tick of a fast link: no total can be had from that.
_WIDE: Final = frozenset({PCIE_TRANSMIT, PCIE_RECEIVE, NVLINK_TRANSMIT, NVLINK_RECEIVE})
_NAME: Final = "nvmlDeviceGetFieldValues"


def known_to(driver_version: str, fields: Iterable[Field]) -> list[Field]:
    """Those whose ids mean with this driver what they mean here."""
    parts = [part for part in driver_version.split(".")[:2] if part.isdecimal()]
    renumbered = tuple(map(int, parts)) >= RENUMBERED_SINCE
    return [field for field in fields if field[0] < RENUMBERED_FROM or renumbered]


class Fields:
    """Fields of one GPU that are asked for together, again and again: their memory is made once.

    It is made anew where the GPU refuses one for good, and where refusals are forgotten.
    """

    def __init__(self, fields: Iterable[Field]) -> None:
        self._fields = tuple(fields)
        self._prepare((), refusals=-1)

    def read(self, device: Device) -> dict[Field, Any]:
        """Those that the GPU tells, by id and scope. Raises DriverAway and GpuGone."""
        device.reask_in_time()
        if device.refusals != self._refusals:
            wanted = filter(device.may_ask, self._fields if device.may_ask(_NAME) else ())
            self._prepare(tuple(wanted), device.refusals)
        found: dict[Field, Any] = {}
        if not self._wanted or not self._ask(device):
            return found
        for field, (kind, code, bits) in zip(
            self._wanted, _ANSWER.iter_unpack(self._memory), strict=True
        ):
            if code:
                _refused(device, field, code)
            elif field[0] in _WIDE and kind in _NARROW:
                device.note(field, CallFailed(_NAME, NOT_SUPPORTED))
            elif (value := number_of(kind, bits)) is not None:
                found[field] = value
        return found

    def _prepare(self, wanted: tuple[Field, ...], refusals: int) -> None:
        self._wanted, self._refusals = wanted, refusals
        self._blank = b"".join(_ASKED.pack(number, scope) for number, scope in wanted)
        self._memory = bytearray(self._blank)
        self._array = (ctypes.c_ubyte * len(self._memory)).from_buffer(self._memory)
        self._count = ctypes.c_int(len(wanted))

    def _ask(self, device: Device) -> bool:
        function = getattr(pynvml.nvmlLib, _NAME, None)
        if function is None:
            return False
        self._memory[:] = (
            self._blank
        )  # what a call leaves as it is shall not be an answer of the last one
        arguments = device.handle, self._count, self._array
        code = device.library.call_as(device.index, _NAME, function, *arguments)
        if code:
            _refused(device, _NAME, code)
        return not code


def _refused(device: Device, question: Field | str, code: int) -> None:
    err = device.library.failure(_NAME, code)
    if isinstance(err, DriverAway | GpuGone):
        raise err
    device.note(question, err)


def number_of(kind: int, bits: int) -> float | int | None:
    """What eight bytes say by their type (nvmlValueType_t); None for what NVML marks as not available."""
    if kind in _LONG:
        return None if bits == _ABSENT_U64 else bits
    low = bits & 0xFFFFFFFF
    if kind == _U32:
        return None if low == _ABSENT_U32 else low
    if kind == _DOUBLE:
        (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
        return value if math.isfinite(value) else None
    if kind == _I32:
        return low - 2**32 if low >= 2**31 else low
    if kind == _I64:
        return bits - 2**64 if bits >= 2**63 else bits
    if kind == _U16:
        return low & 0xFFFF
    return None  # of a type that later drivers may have

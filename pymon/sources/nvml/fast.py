"""What is read at each tick: one call for all fields, and one each for utilisation, memory and activity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pymon.model.gpu import FastReadings, LinkBytes
from pymon.sources.nvml import fields, memory
from pymon.sources.nvml.device import Device
from pymon.sources.nvml.fields import Field, Fields
from pymon.sources.nvml.gpm import Gpm
from pymon.sources.nvml.mig import Mig
from pymon.sources.nvml.plausible import (
    NVLINK_MAX_BYTES_S,
    PCIE_MAX_BYTES_S,
    Plausible,
)

SECONDS_PER_SECOND: Final = 1.0  # time with a reason cannot grow faster than time
_SUM: Final = fields.ALL_LINKS
Found = Mapping[Field, Any]
_PCIE: Final = {fields.PCIE_TRANSMIT: "transmit", fields.PCIE_RECEIVE: "receive"}
_NVLINK: Final = {
    "transmit": (fields.NVLINK_TRANSMIT_KIB, fields.NVLINK_TRANSMIT),
    "receive": (fields.NVLINK_RECEIVE_KIB, fields.NVLINK_RECEIVE),
}
_NVLINK_FIELDS: Final = frozenset(number for pair in _NVLINK.values() for number in pair)


def wanted(driver_version: str, links: int) -> list[Field]:
    """The fields of a tick. `links`: one of each NVLink instead of their sum, 0 for the sum."""
    plain = [fields.POWER_INSTANT, fields.ENERGY, *fields.CLOCKS_EVENTS.values()]
    plain += [fields.PCIE_REPLAYS, fields.PCIE_TRANSMIT, fields.PCIE_RECEIVE]
    nvlink = [number for pair in _NVLINK.values() for number in pair]
    scopes = range(links) if links else (_SUM,)
    every = [(number, 0) for number in plain]
    every += [(number, scope) for scope in scopes for number in nvlink]
    return fields.known_to(driver_version, every)


def read(device: Device, asked: Fields, gpm: Gpm, mig: Mig, now_s: float) -> FastReadings:
    """Everything that the GPU tells and that can be. Raises DriverAway and GpuGone."""
    check, found = device.plausible, asked.read(device)
    power_w = _power(device, found)
    # A GPU that is cut into instances answers no utilisation, or zero (NVIDIA/dcgm-exporter#216).
    rates = None if device.identity.mig_enabled else device.ask("nvmlDeviceGetUtilizationRates")
    utilization = check.ratio(None if rates is None else rates.gpu)
    activity = gpm.read(device)
    utilization, agreed = check.agreed(utilization, activity)
    if activity is not None and agreed is None:
        gpm.rearm()
    return FastReadings(
        utilization_ratio=utilization,
        memory_utilization_ratio=check.ratio(None if rates is None else rates.memory),
        memory=memory.read(device, device.handle),
        power_w=power_w,
        energy_j_total=check.energy(_energy_j(device, found), power_w, now_s),
        clocks_event_s_total=_clocks_events(check, found, now_s),
        pcie_transmit_bytes_total=_pcie(device, found, fields.PCIE_TRANSMIT, gpm, now_s),
        pcie_receive_bytes_total=_pcie(device, found, fields.PCIE_RECEIVE, gpm, now_s),
        pcie_replays_total=_whole(
            check.counter("replays", found.get((fields.PCIE_REPLAYS, 0)), now_s)
        ),
        nvlink=_nvlink(check, found, now_s),
        activity=agreed,
        mig=mig.read(device, gpm),
    )


def _power(device: Device, found: Found) -> float | None:
    milliwatts = found.get((fields.POWER_INSTANT, 0))
    if milliwatts is None:
        milliwatts = device.ask("nvmlDeviceGetPowerUsage")
    return device.plausible.watts(milliwatts)


def _energy_j(device: Device, found: Found) -> float | None:
    millijoules = found.get((fields.ENERGY, 0))
    if millijoules is None:
        millijoules = device.ask("nvmlDeviceGetTotalEnergyConsumption")
    return None if millijoules is None else millijoules / 1000


def _clocks_events(check: Plausible, found: Found, now_s: float) -> tuple[tuple[str, float], ...]:
    seconds = []
    for reason, number in fields.CLOCKS_EVENTS.items():
        held_ns = found.get((number, 0))
        held_s = None if held_ns is None else held_ns / 1e9
        held_s = check.counter(f"clocks_{reason}", held_s, now_s, SECONDS_PER_SECOND)
        if held_s is not None:
            seconds.append((reason, held_s))
    return tuple(seconds)


def _pcie(device: Device, found: Found, number: int, gpm: Gpm, now_s: float) -> int | None:
    """By the byte counter; where the GPU has none for good, what GPM's windows add up to."""
    if not device.may_ask((number, 0)):
        return _whole(gpm.pcie_bytes.get(_PCIE[number]))
    value = found.get((number, 0))
    check = device.plausible
    return _whole(check.counter(f"field_{number}", value, now_s, PCIE_MAX_BYTES_S))


def _nvlink(check: Plausible, found: Found, now_s: float) -> tuple[LinkBytes, ...]:
    links = []
    for scope in sorted({scope for number, scope in found if number in _NVLINK_FIELDS}):
        both = [
            _whole(check.counter(f"nvlink_{way}_{scope}", value, now_s, NVLINK_MAX_BYTES_S))
            for way, value in _link_bytes(found, scope)
        ]
        if both[0] is not None and both[1] is not None:
            links.append(LinkBytes("" if scope == _SUM else str(scope), both[0], both[1]))
    return tuple(links)


def _link_bytes(found: Found, scope: int) -> list[tuple[str, int | None]]:
    ways = []
    for way, (kib_field, bytes_field) in _NVLINK.items():
        kib = found.get((kib_field, scope))
        ways.append((way, found.get((bytes_field, scope)) if kib is None else kib * 1024))
    return ways


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)

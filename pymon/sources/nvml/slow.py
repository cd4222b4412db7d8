"""What is read each ten seconds: limits, clocks, heat, errors, health, processes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pynvml

from pymon.model.gpu import EccCount, SlowReadings
from pymon.sources.nvml import fields
from pymon.sources.nvml.device import Device
from pymon.sources.nvml.fields import Field, Fields
from pymon.sources.nvml.processes import Processes

CLOCKS: Final = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
# Bits of nvmlClocksEventReasons (nvml.h); board limit and reliability since R590's.
EVENT_BITS: Final = {
    "gpu_idle": 0x1,
    "application_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
SEVERITIES: Final = {"corrected": 0, "uncorrected": 1}
SCOPES: Final = {"volatile": 0, "aggregate": 1}
LOCATIONS: Final = {"dram": 2, "sram": 7}  # NVML_MEMORY_LOCATION_DEVICE_MEMORY, _SRAM
Found = Mapping[Field, Any]


def wanted(links: int) -> list[Field]:
    """The fields of a slow reading; those of each of `links` NVLinks, or of their sum."""
    plain = (fields.POWER_AVERAGE, *fields.LIMITS.values(), fields.MEMORY_TEMPERATURE)
    plain += (*fields.REMAPPED.values(), fields.REMAP_PENDING, fields.REMAP_FAILURE)
    plain += (fields.RECOVERY_ACTION,)
    every = [(number, 0) for number in plain]
    if not links:
        return every + [(number, 0) for number in fields.NVLINK_ERRORS.values()]
    return every + [(n, link) for link in range(links) for n in fields.NVLINK_LINK_ERRORS.values()]


def read(
    device: Device, asked: Fields, processes: Processes, shares: bool, now_s: float
) -> SlowReadings:
    """Everything that the GPU tells; `shares`: also what each process took. Raises DriverAway and GpuGone."""
    found = asked.read(device)
    pending, failure = (
        found.get((number, 0)) for number in (fields.REMAP_PENDING, fields.REMAP_FAILURE)
    )
    state, status = _fabric(device)
    return SlowReadings(
        power_average_w=_watts(device, found, fields.POWER_AVERAGE),
        power_limits_w=tuple(
            (kind, watts)
            for kind, number in fields.LIMITS.items()
            if (watts := _watts(device, found, number)) is not None
        ),
        clocks_hz=_clocks(device),
        clocks_event_active=_events(device),
        temperatures_celsius=_temperatures(device, found),
        ecc=tuple(_ecc(device, now_s)),
        remapped_rows_total=tuple(
            (cause, int(found[number, 0]))
            for cause, number in fields.REMAPPED.items()
            if (number, 0) in found
        ),
        row_remap_pending=None if pending is None else bool(pending),
        row_remap_failure=None if failure is None else bool(failure),
        recovery_action=found.get((fields.RECOVERY_ACTION, 0)),
        fabric_state=state,
        fabric_status=status,
        nvlink_errors_total=tuple(_nvlink_errors(found)),
        processes=processes.read(device, shares),
    )


def _watts(device: Device, found: Found, number: int) -> float | None:
    return device.plausible.watts(found.get((number, 0)))


def _clocks(device: Device) -> tuple[tuple[str, float], ...]:
    found = (
        (name, device.ask("nvmlDeviceGetClockInfo", domain)) for name, domain in CLOCKS.items()
    )
    return tuple((name, mhz * 1e6) for name, mhz in found if mhz)  # none runs at 0 MHz


def _events(device: Device) -> tuple[tuple[str, bool], ...]:
    bits = device.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None:  # before R535 it had another name
        bits = device.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return (
        () if bits is None else tuple((name, bool(bits & bit)) for name, bit in EVENT_BITS.items())
    )


def _temperatures(device: Device, found: Found) -> tuple[tuple[str, float], ...]:
    sensor = pynvml.NVML_TEMPERATURE_GPU
    die = device.ask("nvmlDeviceGetTemperature", sensor)
    if die is None:  # to be dropped with CUDA 14
        die = device.ask("nvmlDeviceGetTemperatureV", sensor)
    read = {
        "gpu": die,
        "memory": found.get((fields.MEMORY_TEMPERATURE, 0)),
    }
    checked = ((name, device.plausible.celsius(value)) for name, value in read.items())
    return tuple((name, float(value)) for name, value in checked if value is not None)


def _ecc(device: Device, now_s: float) -> Iterator[EccCount]:
    """By location; where the GPU tells no location, the total under `all`, so that no error counts twice."""
    for severity, kind in SEVERITIES.items():
        for scope, counter in SCOPES.items():
            located = [
                (name, device.ask("nvmlDeviceGetMemoryErrorCounter", kind, counter, location))
                for name, location in LOCATIONS.items()
            ]
            if all(value is None for _, value in located):
                located = [("all", device.ask("nvmlDeviceGetTotalEccErrors", kind, counter))]
            for name, value in located:
                key = f"ecc_{severity}_{scope}_{name}"
                checked = device.plausible.counter(key, value, now_s)
                if checked is not None:
                    yield EccCount(severity, scope, name, int(checked))


def _fabric(device: Device) -> tuple[int | None, int | None]:
    """The state of the registration and, once it has ended, NVML's code for how."""
    name, info = "nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v2_t()
    if device.ask_as(name, name, device.handle, ctypes.byref(info)) is None:
        return None, None
    state = int(info.state) or None  # 0: there is no fabric
    return state, int(info.status) if state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED else None


def _nvlink_errors(found: Found) -> Iterator[tuple[str, str, int]]:
    for kind, number in fields.NVLINK_ERRORS.items():
        if (number, 0) in found:
            yield "", kind, int(found[number, 0])
    links = sorted(
        scope for number, scope in found if number == fields.NVLINK_LINK_ERRORS["replay"]
    )
    for link in links:
        for kind, number in fields.NVLINK_LINK_ERRORS.items():
            if (number, link) in found:
                yield str(link), kind, int(found[number, link])

"""What cannot be is dropped and counted: never clamped, and never read as idle.

The reasons are the label values of `pymon_gpu_readings_invalid_total`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from pymon.model.gpu import GpuActivity, GpuMemory

OUT_OF_RANGE: Final = "out_of_range"
BACKWARDS: Final = "backwards"  # a counter that fell and did not stay there
CONTRADICTION: Final = "contradiction"  # two sources that cannot both be right
FROZEN: Final = "frozen"  # a sampler that has stopped
REASONS: Final = (OUT_OF_RANGE, BACKWARDS, CONTRADICTION, FROZEN)

POWER_MAX_W: Final = 10_000.0  # the largest GPUs draw 1,400 W (GB300)
CELSIUS_MAX: Final = 217.0  # where solder melts
PCIE_MAX_BYTES_S: Final = 256e9  # PCIe 7.0 x16, one direction
NVLINK_MAX_BYTES_S: Final = 4e12  # twice NVLink 5's 1.8 TB/s of both directions
SLACK_S: Final = 1.0  # the driver advances its counters in steps of 0.1 s, and a tick may come late
FROZEN_S: Final = 5.0  # fifty of those steps
BUSY_RATIO: Final = 0.5  # a kernel ran in half the window: windows of two sources that overlap badly still share some
CONTRADICTIONS: Final = 2  # ticks in a row: one may be the edge of a job

GPM, NVML = "gpm", "nvml"
ReadingT = TypeVar("ReadingT")


@dataclass(slots=True)
class _Counter:
    value: float
    at_s: float
    changed_s: float
    fell_to: float | None = None


@dataclass(slots=True)
class Plausible:
    """The checks of one GPU. `take_invalid` gives the reasons since the last time."""

    _invalid: list[str] = field(default_factory=list)
    _counters: dict[str, _Counter] = field(default_factory=dict)
    _contradicted: int = 0
    _compared: GpuActivity | None = None
    _stopped: str | None = None  # GPM or NVML

    def take_invalid(self) -> tuple[str, ...]:
        """A reason for each reading that was dropped."""
        invalid, self._invalid = tuple(self._invalid), []
        return invalid

    def drop(self, reason: str) -> None:
        """Counts a reading that the caller drops."""
        self._invalid.append(reason)

    def between(self, value: float | None, low: float, high: float) -> float | None:
        """The value where low <= value <= high."""
        if value is None or low <= value <= high:  # which is no number lies nowhere
            return value
        self.drop(OUT_OF_RANGE)
        return None

    def ratio(self, percent: float | None) -> float | None:
        """Percent as a ratio."""
        value = self.between(percent, 0, 100)
        return None if value is None else value / 100

    def watts(self, milliwatts: float | None) -> float | None:
        """Above zero: a GPU that answers draws power."""
        watts = None if milliwatts is None else milliwatts / 1000
        if watts == 0:
            self.drop(OUT_OF_RANGE)
            return None
        return self.between(watts, 0, POWER_MAX_W)

    def celsius(self, value: float | None) -> float | None:
        """Above zero: a sensor that is not there reads as zero or below (gpud#1208)."""
        return self.between(value, 1, CELSIUS_MAX)

    def memory(self, memory: GpuMemory | None) -> GpuMemory | None:
        """Parts that fit into the whole; what the driver keeps for itself is dropped alone where only that does not."""
        if memory is None:
            return None
        left_bytes = memory.size_bytes - memory.used_bytes - memory.free_bytes
        if left_bytes >= (memory.reserved_bytes or 0):
            return memory
        self.drop(OUT_OF_RANGE)
        return replace(memory, reserved_bytes=None) if left_bytes >= 0 else None

    def counter(
        self, name: str, value: float | None, now_s: float, max_per_s: float = math.inf
    ) -> float | None:
        """A counter that grew by what is possible. One that fell and stays there was reset; one that did not, erred."""
        if value is None:
            return None
        last = self._counters.get(name)
        if last is None:
            self._counters[name] = _Counter(value, now_s, now_s)
            return value
        if value == last.value:  # as most do most of the time
            last.at_s, last.fell_to = now_s, None
            return value
        if value < last.value and (last.fell_to is None or value < last.fell_to):
            last.fell_to = value
            self.drop(BACKWARDS)
            return None
        if value - last.value > max_per_s * (now_s - last.at_s + SLACK_S):
            self.drop(OUT_OF_RANGE)
            return None
        last.value, last.at_s, last.changed_s, last.fell_to = value, now_s, now_s, None
        return value

    def energy(self, energy_j: float | None, power_w: float | None, now_s: float) -> float | None:
        """The energy counter, unless it stands still while power is drawn."""
        energy_j = self.counter("energy", energy_j, now_s, POWER_MAX_W)
        last = self._counters.get("energy")
        if energy_j is None or last is None or not power_w or now_s - last.changed_s < FROZEN_S:
            return energy_j
        self.drop(FROZEN)
        return None

    def agreed(
        self, utilization: float | None, activity: GpuActivity | None
    ) -> tuple[float | None, GpuActivity | None]:
        """Both, unless one says busy and the other idle: then the idle one has stopped (NVIDIA/DCGM#303).

        It is not believed again before it shows something: its zero beside a GPU that idles later proves nothing.
        """
        sm = None if activity is None else activity.sm_active_ratio
        if utilization is None or sm is None:
            self._contradicted = 0
        else:
            idle_gpm, idle_nvml = sm == 0, utilization == 0
            apart = (idle_gpm and utilization >= BUSY_RATIO) or (idle_nvml and sm >= BUSY_RATIO)
            if not apart:
                self._contradicted = 0
            elif (
                activity is not self._compared
            ):  # one window is told to ticks that come soon after each other
                self._contradicted += 1
        self._compared = activity
        if self._contradicted >= CONTRADICTIONS:
            self._stopped = GPM if sm == 0 else NVML
        if self._stopped == GPM and sm is not None:
            return utilization, self._while_idle(activity, sm)
        if self._stopped == NVML and utilization is not None:
            return self._while_idle(utilization, utilization), activity
        return utilization, activity

    def _while_idle(self, reading: ReadingT, shown: float) -> ReadingT | None:
        if shown > 0:
            self._stopped = None
            return reading
        self.drop(CONTRADICTION)
        return None

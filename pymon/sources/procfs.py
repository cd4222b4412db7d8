"""Processors and memory, from `/proc`; `root` is a parameter so that tests bring their own tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pymon.base.errors import SourceFailed


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Clock ticks of all processors together since boot."""

    busy_ticks: int
    total_ticks: int
    cpu_count: int


@dataclass(frozen=True, slots=True)
class Memory:
    """From /proc/meminfo, converted from its kB (which are KiB)."""

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Procfs:
    """Reads below `root`. Raises SourceFailed where a file is missing or not as the kernel writes it."""

    root: Path = Path("/proc")

    def cpu_times(self) -> CpuTimes:
        """The `cpu` line of /proc/stat: user nice system idle iowait irq softirq steal (proc(5))."""
        lines = self._read("stat").splitlines()
        try:
            fields = [int(field) for field in lines[0].split()[1:9]]
            idle = fields[3] + fields[4]
        except (IndexError, ValueError) as err:
            raise SourceFailed(f"{self.root}/stat: {err}") from None
        count = sum(line.startswith("cpu") for line in lines) - 1
        return CpuTimes(sum(fields) - idle, sum(fields), count)

    def memory(self) -> Memory:
        """MemTotal and MemAvailable."""
        values = {}
        for line in self._read("meminfo").splitlines():
            name, _, rest = line.partition(":")
            values[name] = rest.split()[0] if rest.split() else ""
        try:
            return Memory(
                int(values["MemTotal"]) * 1024,
                int(values["MemAvailable"]) * 1024,
            )
        except (KeyError, ValueError) as err:
            raise SourceFailed(f"{self.root}/meminfo: {err}") from None

    def _read(self, name: str) -> str:
        try:
            return (self.root / name).read_text(encoding="ascii", errors="replace")
        except OSError as err:
            raise SourceFailed(f"{self.root}/{name}: {err.strerror}") from None


@dataclass(frozen=True, slots=True)
class SelfUsage:
    """What this process has used so far."""

    cpu_s: float
    rss_bytes: int | None


def self_usage() -> SelfUsage:
    """Of the daemon itself: user and system time, and resident memory (None where /proc does not tell)."""
    times = os.times()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return SelfUsage(times.user + times.system, None)
    return SelfUsage(times.user + times.system, pages * os.sysconf("SC_PAGE_SIZE"))

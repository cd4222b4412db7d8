"""The node as a whole, from `/proc`; `root` is a parameter so that containers and tests bring their own tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pymon.sources import files

CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # proc(5)
PRESSURES = ("cpu", "memory", "io")
_SECTOR_BYTES = (
    512  # of diskstats, whatever the device's own are (Documentation/admin-guide/iostats)
)


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Clock ticks of all processors together since boot, and what /proc/stat tells beside them."""

    busy_ticks: int
    total_ticks: int
    cpu_count: int
    mode_ticks: tuple[int, ...]  # one per CPU_MODES
    blocked: int | None = None  # processes that wait for I/O now


@dataclass(frozen=True, slots=True)
class Memory:
    """From /proc/meminfo, converted from its kB (which are KiB); what this kernel does not list is None."""

    total_bytes: int
    available_bytes: int
    free_bytes: int | None = None
    cached_bytes: int | None = None
    buffers_bytes: int | None = None
    shared_bytes: int | None = None
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Paging:
    """From /proc/vmstat, since boot."""

    swapped_in_pages: int | None
    swapped_out_pages: int | None
    major_faults: int | None
    oom_kills: int | None


def pressure(text: str) -> tuple[float, float | None]:
    """Seconds waited by some and by all, of a pressure file; the second is None where the kernel has no such line."""
    totals = {}
    for line in files.lines(text):
        kind, *pairs = line.split()
        totals[kind] = int(dict(pair.split("=") for pair in pairs)["total"]) / 1e6
    return totals["some"], totals.get("full")


@dataclass(frozen=True, slots=True)
class Procfs:
    """Reads below `root`. Raises SourceAbsent where a file is missing, SourceFailed where it is not as the kernel's."""

    root: str | Path = "/proc"

    def cpu_times(self) -> CpuTimes:
        """The `cpu` line of /proc/stat and `procs_blocked`."""
        return files.parsed(f"{self.root}/stat", _cpu_times)

    def memory(self) -> Memory:
        """/proc/meminfo."""
        return files.parsed(f"{self.root}/meminfo", lambda text: _memory(f"\n{text}"))

    def paging(self) -> Paging:
        """/proc/vmstat."""
        return files.parsed(f"{self.root}/vmstat", lambda text: _paging(f"\n{text}"))

    def pressure(self, resource: str) -> tuple[float, float | None]:
        """Seconds in which some, and in which all that were not idle waited for the resource, since boot."""
        return files.parsed(f"{self.root}/pressure/{resource}", pressure)


def _cpu_times(text: str) -> CpuTimes:
    """Without looking at each line: on large hosts the one of interrupts alone has a hundred thousand characters."""
    first = text[: text.index("\n")]
    ticks = [int(field) for field in first.split()[1:9]]
    ticks += [0] * (len(CPU_MODES) - len(ticks))
    if not first.startswith("cpu ") or not sum(ticks):
        raise ValueError(first[:40])
    busy = sum(ticks) - ticks[3] - ticks[4]
    blocked = _after(text, "\nprocs_blocked ")
    return CpuTimes(busy, sum(ticks), text.count("\ncpu"), tuple(ticks), blocked)


def _memory(text: str) -> Memory:
    def value(name: str) -> int | None:
        kib = _after(text, f"\n{name}:")
        return None if kib is None else kib * 1024

    total, available = value("MemTotal"), value("MemAvailable")
    if total is None or available is None:
        raise ValueError("no MemTotal or no MemAvailable")
    return Memory(
        total_bytes=total,
        available_bytes=available,
        free_bytes=value("MemFree"),
        cached_bytes=value("Cached"),
        buffers_bytes=value("Buffers"),
        shared_bytes=value("Shmem"),
        dirty_bytes=value("Dirty"),
        writeback_bytes=value("Writeback"),
        swap_total_bytes=value("SwapTotal"),
        swap_free_bytes=value("SwapFree"),
    )


def _paging(text: str) -> Paging:
    return Paging(
        swapped_in_pages=_after(text, "\npswpin "),
        swapped_out_pages=_after(text, "\npswpout "),
        major_faults=_after(text, "\npgmajfault "),
        oom_kills=_after(text, "\noom_kill "),
    )


def _after(text: str, name: str) -> int | None:
    """The number that follows; None where the name is not there."""
    begin = text.find(name)
    if begin < 0:
        return None
    begin += len(name)
    return int(text[begin : text.index("\n", begin)].split(maxsplit=1)[0])


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

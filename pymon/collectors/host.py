"""Processors, memory, page cache and swap of the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.collectors.absences import Absences
from pymon.collectors.rising import Rising
from pymon.model.host import HostSection
from pymon.sources.process import PAGE_BYTES, TICKS_PER_S
from pymon.sources.procfs import CPU_MODES, CpuTimes, Paging, Procfs


@dataclass(slots=True)
class HostCollector:
    """Gives one `HostSection`: how busy the processors were since the last run, and memory.

    Source: /proc/stat, /proc/meminfo and /proc/vmstat.
    Cost: three reads, the last of 4 KiB.
    Errors: `SourceAbsent` or `SourceFailed` where /proc does not answer; without vmstat its fields are None. The first
        run has no `cpu_busy_ratio`.
    """

    name: ClassVar[str] = "host"
    interval_s: ClassVar[float] = 5.0
    timeout_s: ClassVar[float] = 1.0
    procfs: Procfs = field(default_factory=Procfs)
    _last: CpuTimes | None = None
    _rising: Rising = field(default_factory=Rising)

    def collect(self) -> HostSection:
        """Read once."""
        absences = Absences()
        now, last = self.procfs.cpu_times(), self._last
        self._last = now
        memory = self.procfs.memory()
        paging = absences.get("paging", self.procfs.paging) or Paging(None, None, None, None)
        return HostSection(
            cpu_count=now.cpu_count,
            cpu_busy_ratio=_busy_ratio(last, now),
            memory_total_bytes=memory.total_bytes,
            memory_available_bytes=memory.available_bytes,
            cpu_s_total=tuple(
                (mode, self._rising.hold(mode, ticks) / TICKS_PER_S)
                for mode, ticks in zip(CPU_MODES, now.mode_ticks, strict=True)
            ),
            processes_blocked=now.blocked,
            memory_free_bytes=memory.free_bytes,
            memory_cached_bytes=memory.cached_bytes,
            memory_buffers_bytes=memory.buffers_bytes,
            memory_shared_bytes=memory.shared_bytes,
            memory_dirty_bytes=memory.dirty_bytes,
            memory_writeback_bytes=memory.writeback_bytes,
            swap_total_bytes=memory.swap_total_bytes,
            swap_free_bytes=memory.swap_free_bytes,
            swap_in_bytes_total=_bytes(paging.swapped_in_pages),
            swap_out_bytes_total=_bytes(paging.swapped_out_pages),
            major_faults_total=paging.major_faults,
            oom_kills_total=paging.oom_kills,
            absent=absences.all(),
        )


def _bytes(pages: int | None) -> int | None:
    return None if pages is None else pages * PAGE_BYTES


def _busy_ratio(last: CpuTimes | None, now: CpuTimes) -> float | None:
    """None without two readings, or where the counters went back (iowait may)."""
    if last is None or now.total_ticks <= last.total_ticks or now.busy_ticks < last.busy_ticks:
        return None
    busy = (now.busy_ticks - last.busy_ticks) / (now.total_ticks - last.total_ticks)
    return busy if busy <= 1 else None

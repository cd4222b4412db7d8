"""Processors and memory of the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.model.host import HostSection
from pymon.sources.procfs import CpuTimes, Procfs


@dataclass(slots=True)
class HostCollector:
    """Gives one `HostSection`: how busy the processors were since the last run, and memory.

    Source: /proc/stat and /proc/meminfo.
    Cost: two small reads.
    Errors: `SourceFailed` where /proc does not answer; the first run has no `cpu_busy_ratio`.
    """

    name: ClassVar[str] = "host"
    interval_s: ClassVar[float] = 1.0
    timeout_s: ClassVar[float] = 1.0
    procfs: Procfs = field(default_factory=Procfs)
    _last: CpuTimes | None = None

    def collect(self) -> HostSection:
        """Read once."""
        now, last = self.procfs.cpu_times(), self._last
        self._last = now
        memory = self.procfs.memory()
        return HostSection(
            cpu_count=now.cpu_count,
            cpu_busy_ratio=_busy_ratio(last, now),
            memory_total_bytes=memory.total_bytes,
            memory_available_bytes=memory.available_bytes,
        )


def _busy_ratio(last: CpuTimes | None, now: CpuTimes) -> float | None:
    """None without two readings, or where the counters went back (iowait may)."""
    if last is None or now.total_ticks <= last.total_ticks or now.busy_ticks < last.busy_ticks:
        return None
    busy = (now.busy_ticks - last.busy_ticks) / (now.total_ticks - last.total_ticks)
    return busy if busy <= 1 else None

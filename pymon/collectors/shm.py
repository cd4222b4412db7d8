"""Room in `/dev/shm`, through which loader workers hand over their batches: a container has one of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.collectors.absences import Absences
from pymon.collectors.watching import Newest, Watched, no_snapshot, watched
from pymon.model.absence import Why
from pymon.model.host import ProcessShm, ShmSection
from pymon.sources.shm import ProcessMounts, SharedMemory, ShmMount, Usage

_LOOK_AGAIN = 6  # runs after which a process's mounts are read again: they hardly ever change


@dataclass(slots=True)
class ShmCollector:
    """Gives one `ShmSection`, in bytes: of the daemon's own /dev/shm and of each training process's.

    Source: statvfs of /dev/shm; /proc/PID/mountinfo, and statvfs through /proc/PID/root where a process has its own.
    Cost: one system call, four for each process with its own, and a read of its mountinfo each half minute.
    Errors: `SourceAbsent` where there is no /dev/shm, `SourceFailed` where it does not answer. Where the daemon's user
        may not look into a process's, its size alone is told (from the mount's options) and the reason counted.
    """

    name: ClassVar[str] = "shm"
    interval_s: ClassVar[float] = 5.0
    timeout_s: ClassVar[float] = 1.0
    memory: SharedMemory = field(default_factory=SharedMemory)
    mounts: ProcessMounts = field(default_factory=ProcessMounts)
    newest: Newest = no_snapshot
    _runs: int = 0
    _known: dict[int, ShmMount] = field(default_factory=dict)

    def collect(self) -> ShmSection:
        """Read once."""
        own = self.memory.usage()
        absences = Absences()
        processes = watched(self.newest)
        self._runs += 1
        again = self._runs % _LOOK_AGAIN == 0
        pids = {process.pid for process in processes}
        self._known = {p: m for p, m in self._known.items() if p in pids and not again}
        found = [self._process(process, own, absences) for process in processes]
        return ShmSection(
            own.total_bytes,
            own.used_bytes,
            own.free_bytes,
            tuple(one for one in found if one is not None),
            absences.all(),
        )

    def _process(self, who: Watched, own: Usage, absences: Absences) -> ProcessShm | None:
        mount = self._known.get(who.pid) or absences.get("shm", self.mounts.find, who.pid)
        if mount is None:
            return None
        self._known[who.pid] = mount
        shared = mount.device == own.device
        if not shared and not mount.answers_at_once:
            absences.note(
                "shm", Why.UNREADABLE, f"{who.pid} has /dev/shm on {'/'.join(mount.kinds)}"
            )
            return None
        usage = own if shared else absences.get("shm", self.mounts.usage, who.pid, mount)
        total_bytes = usage.total_bytes if usage else mount.size_bytes
        if total_bytes is None:
            return None
        used, free = (usage.used_bytes, usage.free_bytes) if usage else (None, None)
        return ProcessShm(who.label_pid, who.rank, who.job_id, shared, total_bytes, used, free)

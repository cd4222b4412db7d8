"""Whether the kernel's out-of-memory killer was at work in a process's control group when that process ended.

The counter of its group tells so without any rights: `oom_kill` of `memory.events` (version 2) or `memory.oom_control`
(version 1). It does not tell whom it counts, so each count explains one SIGKILL at most, that of the first to end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pymon.base.clock import Clock, SystemClock
from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.base.printable import printable
from pymon.base.units import human_seconds
from pymon.sources.cgroup_paths import Group
from pymon.sources.cgroupfs import Cgroupfs, OomCounts
from pymon.sources.process import Processes

LOOK_S = 5.0  # between two looks at all groups; as often as the collector of control groups
_PATH_MAX = 200


@dataclass(frozen=True, slots=True)
class OomWord:
    """What the counters say of one end: `explains` a SIGKILL, and the evidence as it is shown."""

    explains: bool = False
    evidence: tuple[str, ...] = ()


@dataclass(slots=True)
class _Watched:
    group: Group
    # The two last looks: the newest may have come between the kill and the end that is seen of it.
    looks: deque[tuple[int, OomCounts]] = field(default_factory=lambda: deque(maxlen=2))


@dataclass(slots=True)
class OomWatch:
    """Every method reads files and may block: for threads. What cannot be read says nothing."""

    processes: Processes = field(default_factory=Processes)
    cgroups: Cgroupfs = field(default_factory=Cgroupfs)
    clock: Clock = field(default_factory=SystemClock)
    _watched: dict[str, _Watched] = field(default_factory=dict)  # by attach id
    _explained: dict[str, int] = field(default_factory=dict)  # kills of a folder that have one

    def begin(self, attach_id: str, host_pid: int | None) -> None:
        """Takes the group of a process as the daemon's own pid namespace numbers it."""
        try:
            if host_pid is None or not self.processes.is_own():
                return
            group = self.cgroups.group(self.processes.cgroup(host_pid), "memory")
            watched = _Watched(group)
            watched.looks.append((self.clock.monotonic_ns(), self.cgroups.oom_counts(group)))
        except (SourceAbsent, SourceFailed):
            return
        self._watched[attach_id] = watched

    def look(self) -> None:
        """At each group once."""
        found: dict[str, OomCounts] = {}
        for watched in list(self._watched.values()):
            folder = watched.group.folder
            try:
                counts = found[folder] = found.get(folder) or self.cgroups.oom_counts(watched.group)
            except (SourceAbsent, SourceFailed):
                continue
            watched.looks.append((self.clock.monotonic_ns(), counts))

    def at_end(self, attach_id: str) -> OomCounts | None:
        """The counts now: the group may go with its last process."""
        watched = self._watched.get(attach_id)
        try:
            return None if watched is None else self.cgroups.oom_counts(watched.group)
        except (SourceAbsent, SourceFailed):
            return None

    def word(self, attach_id: str, now: OomCounts | None, by_kill: bool) -> OomWord:
        """On the process, which has ended, `by_kill`: of a SIGKILL. It is watched no more."""
        watched = self._watched.pop(attach_id, None)
        if watched is None or now is None:
            return OomWord()
        since_ns, before = watched.looks[0]
        within_s = (self.clock.monotonic_ns() - since_ns) / 1e9
        folder = watched.group.folder
        kills = _rise(before.kills, now.kills)
        said = []
        if kills:
            said.append(f"out-of-memory kills rose from {before.kills} to {now.kills}")
        if hits := _rise(before.limit_hits, now.limit_hits):
            said.append(f"its memory limit was hit {hits:,} times")
        if not said or not (kills or now.kills is None):
            return OomWord()  # a group at its limit reclaims: alone that is no trouble
        first = max(before.kills or 0, self._explained.get(folder, 0))
        explains = by_kill and now.kills is not None and first < now.kills
        if explains:
            self._explained[folder] = first + 1
        where = printable(watched.group.path, _PATH_MAX)
        what = "; ".join(said)
        return OomWord(
            explains, (f"control group {where}: {what}, within {human_seconds(within_s)}",)
        )

    def forget(self, attach_id: str) -> None:
        """A process that goes on without us."""
        self._watched.pop(attach_id, None)
        folders = {watched.group.folder for watched in self._watched.values()}
        self._explained = {key: n for key, n in self._explained.items() if key in folders}


def _rise(before: int | None, now: int | None) -> int:
    return 0 if before is None or now is None else max(0, now - before)

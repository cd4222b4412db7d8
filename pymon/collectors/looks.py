"""What /proc tells of the processes that matter, looked at again each ten seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.collectors.absences import Absences
from pymon.collectors.identity import place
from pymon.model.jobs import JobIdentity
from pymon.sources.files import NotPermitted
from pymon.sources.process import Processes

LOOK_S = 10.0  # between two looks at a process; the driver's lists are as old as that too


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one process; `start_ticks` None: it is dead or not there."""

    start_ticks: int | None
    uid: int = -1
    identity: JobIdentity = field(default_factory=JobIdentity)


@dataclass(slots=True)
class Looks:
    """`facts` by pid, None where it may live but cannot be read."""

    processes: Processes
    facts: dict[int, Facts | None] = field(default_factory=dict)
    _absent: Absences = field(default_factory=Absences)
    _looked_ns: int | None = None

    def at(self, pids: set[int], now_ns: int) -> Absences:
        """Looks at all of them each ten seconds, at new ones at once; gives what could not be read."""
        if self._looked_ns is None or now_ns - self._looked_ns >= LOOK_S * 1e9:
            self._looked_ns, self._absent, self.facts = now_ns, Absences(), {}
        self.facts = {pid: facts for pid, facts in self.facts.items() if pid in pids}
        for pid in sorted(pids - self.facts.keys()):
            self.facts[pid] = self._read(pid)
        return self._absent

    def _read(self, pid: int) -> Facts | None:
        absences = self._absent
        try:
            stat = self.processes.stat(pid)
        except (SourceAbsent, SourceFailed) as err:
            absences.note_error("process", err)
            gone = isinstance(err, SourceAbsent) and not isinstance(err, NotPermitted)
            return Facts(None) if gone else None
        if stat.state in "ZX":
            return Facts(None)
        status = absences.get("status", self.processes.status, pid)
        if status is None:
            return None
        memberships = absences.get("cgroup", self.processes.cgroup, pid)
        identity = place(memberships).identity if memberships else JobIdentity()
        return Facts(stat.start_ticks, status.uid, identity)

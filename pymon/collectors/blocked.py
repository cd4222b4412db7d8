"""Processes in uninterruptible sleep: waiting for storage, a network file system or a driver that does not answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.clock import Clock, SystemClock
from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.base.printable import printable
from pymon.collectors.absences import Absences
from pymon.model.host import BlockedProcess, BlockedSection
from pymon.sources.process import Processes

_SHOWN_MAX = 20
# Looks after which kernel threads, most of a large host's processes, are looked at anew: their pids hardly ever change.
_KERNEL_THREADS_LOOKS = 20


@dataclass(frozen=True, slots=True)
class _Sight:
    since_ns: int
    switches: int


@dataclass(slots=True)
class BlockedCollector:
    """Gives one `BlockedSection`: who is in state D, and who has been since the look before without running.

    Source: /proc/*/stat, and /proc/PID/status of those in state D; kernel threads, which rest in it, are left out.
        Of a process with many threads the main one counts.
    Cost: a read for each process of the node, each fifteen seconds.
    Errors: processes that end meanwhile are none. `SourceAbsent` where the daemon's user may not see those of others
        (hidepid).
    """

    name: ClassVar[str] = "blocked"
    interval_s: ClassVar[float] = 15.0
    timeout_s: ClassVar[float] = 0.8
    processes: Processes = field(default_factory=Processes)
    clock: Clock = field(default_factory=SystemClock)
    _looks: int = 0
    _kernel_threads: set[int] = field(default_factory=set)
    _seen: dict[tuple[int, int], _Sight] = field(default_factory=dict)

    def collect(self) -> BlockedSection:
        """Look once."""
        absences = Absences()
        now_ns = self.clock.monotonic_ns()
        seen: dict[tuple[int, int], _Sight] = {}
        stuck: list[BlockedProcess] = []
        self.processes.stat(
            1
        )  # whoever may not see that one does not see the others: none seen would mean nothing
        pids = self.processes.pids()
        self._looks += 1
        again = self._looks % _KERNEL_THREADS_LOOKS == 0
        self._kernel_threads = set() if again else self._kernel_threads.intersection(pids)
        for pid in pids:
            if pid in self._kernel_threads:
                continue
            try:
                stat = self.processes.stat(pid)
                if stat.kernel_thread:
                    self._kernel_threads.add(pid)
                if stat.state != "D" or stat.kernel_thread:
                    continue
                switches = self.processes.switches(pid)
            except SourceAbsent:
                continue  # ended since it was listed
            except SourceFailed:
                absences.get("process", self.processes.stat, pid)
                continue
            key = (pid, stat.start_ticks)
            before = self._seen.get(key)
            if before is not None and before.switches == switches:
                seen[key] = before
                blocked_s = (now_ns - before.since_ns) / 1e9
                stuck.append(BlockedProcess(pid, printable(stat.name), blocked_s))
            else:
                seen[key] = _Sight(now_ns, switches)
        self._seen = seen
        stuck.sort(key=lambda one: (-one.blocked_s, one.pid))
        return BlockedSection(len(seen), len(stuck), tuple(stuck[:_SHOWN_MAX]), absences.all())

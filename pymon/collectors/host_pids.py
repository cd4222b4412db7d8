"""Which process of the /proc that is read a training process is, and whether the driver's pids are those of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.collectors.absences import Absences
from pymon.model.absence import Why
from pymon.model.training import TrainingProcess
from pymon.sources.process import Processes

_SEARCH_S = 30.0  # between two searches through all processes, for those that are not found yet


@dataclass(slots=True)
class HostPids:
    """The kernel tells the daemon the pids of its peers in the daemon's own namespace, or none where they lie outside.

    Where /proc is another namespace's (the host's, mounted into a container) or the peer lies outside, the process is
    searched by the namespaces' pids in /proc/PID/status (NSpid) and by its user. Two that fit are none: containers
    start all their trainers as process 1 or 7.
    """

    processes: Processes
    _found: dict[str, int] = field(default_factory=dict)  # by attach id
    _searched_ns: int | None = None
    _sees_host: bool = False
    _is_own: bool = True
    _asked_ns: int | None = None

    def driver_pids_are_ours(self, now_ns: int) -> bool:
        """Whether a pid of the driver is that process here: it numbers them as the host does."""
        self._ask(now_ns)
        return self._sees_host

    def resolve(
        self, trainers: Iterable[TrainingProcess], now_ns: int, absences: Absences
    ) -> dict[int, TrainingProcess]:
        """Each by its pid here; those that are not found are counted."""
        self._ask(now_ns)
        found: dict[int, TrainingProcess] = {}
        missing: list[TrainingProcess] = []
        for trainer in trainers:
            pid = trainer.host_pid if self._is_own else None
            pid = pid if pid is not None else self._found.get(trainer.attach_id)
            if pid is not None:
                found[pid] = trainer
            else:
                missing.append(trainer)
        due = self._searched_ns is None or now_ns - self._searched_ns >= _SEARCH_S * 1e9
        if missing and due:
            self._searched_ns = now_ns
            for trainer, pid in self._search(missing):
                self._found[trainer.attach_id] = pid
                found[pid] = trainer
        for trainer in missing:
            if trainer.attach_id not in self._found:
                example = f"{trainer.pid} lies outside of the daemon's pid namespace"
                absences.note("process", Why.OUT_OF_SIGHT, example)
        living = {trainer.attach_id for trainer in (*found.values(), *missing)}
        self._found = {key: pid for key, pid in self._found.items() if key in living}
        return found

    def _ask(self, now_ns: int) -> None:
        if self._asked_ns is None or now_ns - self._asked_ns >= _SEARCH_S * 1e9:
            self._asked_ns = now_ns
            self._sees_host, self._is_own = self.processes.sees_the_host(), self.processes.is_own()

    def _search(self, missing: list[TrainingProcess]) -> Iterable[tuple[TrainingProcess, int]]:
        candidates: dict[str, list[int]] = {}
        try:
            pids = self.processes.pids()
        except (SourceAbsent, SourceFailed):
            return
        for pid in pids:
            try:
                status = self.processes.status(pid)
            except (SourceAbsent, SourceFailed):
                continue
            own = status.ns_pids[1:] or status.ns_pids  # the first is that of this /proc
            for trainer in missing:
                if status.uid == trainer.uid and trainer.pid in own:
                    candidates.setdefault(trainer.attach_id, []).append(pid)
        for trainer in missing:
            fitting = candidates.get(trainer.attach_id, [])
            if len(fitting) == 1:
                yield trainer, fitting[0]

"""The training processes and their loader workers: processor time, state, descriptors, affinity."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.collectors.absences import Absences
from pymon.collectors.watching import Newest, Watched, no_snapshot, watched
from pymon.model.absence import Why
from pymon.model.memory import HostUse
from pymon.model.training import TrainingSection
from pymon.model.workers import STATES, TrainerUse, WorkersSection
from pymon.sources.process import Processes, Stat

_WORKER_NAME = (
    "pt_data_worker"  # torch's own for its loader workers (torch/utils/data/_utils/worker.py)
)
_SPAWNED = "--multiprocessing-fork"  # how multiprocessing starts a worker that is not forked
_CHILDREN_MAX = 512  # of one process; loaders have dozens
_AFFINITY_RUNS = 3  # affinity is set once, soon after the start: read again each half minute

Key = tuple[int, int]  # pid and start: a pid alone may come again


@dataclass(slots=True)
class _Memory:
    """What is kept of one trainer from run to run."""

    cpu_s: dict[Key, float] = field(default_factory=dict)
    ended_cpu_s: float = 0.0
    started: int = 0
    usable_cpus: int | None = None
    looked_at: int = -_AFFINITY_RUNS


@dataclass(slots=True)
class WorkersCollector:
    """Gives one `WorkersSection`.

    Source: /proc/PID/{stat,status,limits,cmdline,fd} of each training process and of its children, as listed in
        /proc/PID/task/*/children.
    Cost: two small reads for each process and worker.
    Errors: what ended meanwhile is left out; descriptors that may not be counted (before Linux 6.2 those of other
        users) are what the probe counted, else None and counted with their reason. `SourceAbsent` where no process is
        watched.
    """

    name: ClassVar[str] = "workers"
    interval_s: ClassVar[float] = 10.0
    timeout_s: ClassVar[float] = 0.5
    processes: Processes = field(default_factory=Processes)
    newest: Newest = no_snapshot
    _memory: dict[Key, _Memory] = field(default_factory=dict)
    _runs: int = 0

    def collect(self) -> WorkersSection:
        """Read once."""
        trainers = watched(self.newest)
        if not trainers:
            self._memory.clear()
            raise SourceAbsent("no training process to look at")
        absences = Absences()
        self._runs += 1
        others = {who.pid for who in trainers}
        found, keys = [], set()
        for who in trainers:
            own = absences.get("process", self.processes.stat, who.pid)
            if own is None:
                continue
            key = (own.pid, own.start_ticks)
            keys.add(key)
            memory = self._memory.setdefault(key, _Memory())
            found.append(self._trainer(who, own, others, memory, absences))
        self._memory = {key: memory for key, memory in self._memory.items() if key in keys}
        return WorkersSection(tuple(found), absences.all())

    def _trainer(
        self, who: Watched, own: Stat, others: set[int], memory: _Memory, absences: Absences
    ) -> TrainerUse:
        children = self._children(own, others, absences)
        workers = self._workers(own, children)
        self._remember(memory, workers, absences)
        said = _own_word(self.newest, who.pid)
        return TrainerUse(
            pid=who.label_pid,
            rank=who.rank,
            job_id=who.job_id,
            state=STATES.get(own.state, "other"),
            cpu_s_total=own.cpu_s,
            rss_bytes=own.rss_bytes,
            threads=own.threads,
            descriptors=self._descriptors([own], said.descriptors, absences),
            descriptors_max=absences.get("limits", self.processes.descriptors_max, own.pid),
            workers=len(workers),
            workers_by_state=tuple(
                sorted(Counter(STATES.get(worker.state, "other") for worker in workers).items())
            ),
            workers_cpu_s_total=memory.ended_cpu_s + sum(memory.cpu_s.values()),
            workers_rss_bytes=sum(worker.rss_bytes for worker in workers),
            workers_descriptors=self._descriptors(workers, said.workers_descriptors, absences),
            workers_usable_cpus=memory.usable_cpus if workers else None,
            workers_started_total=memory.started,
            other_children=len(children) - len(workers),
        )

    def _descriptors(self, of: list[Stat], told: int | None, absences: Absences) -> int | None:
        """Of all of them; where one may not be counted, what the probe in their process has `told`."""
        missed = absences if told is None else Absences()
        read = self.processes.descriptors
        counts = [missed.get("descriptors", read, one.pid) for one in of]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else told

    def _children(self, own: Stat, others: set[int], absences: Absences) -> list[Stat]:
        """Those of the main thread, else of any: loaders run in the main thread as a rule, and threads are many."""
        pids: list[int] = []
        for all_threads in (False, True):
            pids = absences.get("children", self.processes.children, own.pid, all_threads) or []
            if pids or own.threads == 1:
                break
        if (left := len(pids) - _CHILDREN_MAX) > 0:
            absences.note("children", Why.TOO_MANY, f"{own.pid} has {len(pids)}", left)
        found = []
        for pid in pids[:_CHILDREN_MAX]:
            try:
                child = self.processes.stat(pid)
            except (SourceAbsent, SourceFailed):
                continue  # it has just ended, as a rule
            if pid not in others and child.parent == own.pid:
                found.append(child)
        return found

    def _workers(self, own: Stat, children: list[Stat]) -> list[Stat]:
        """By torch's name for them; before torch had one, those that were forked or spawned by multiprocessing."""
        named = [child for child in children if child.name == _WORKER_NAME]
        if named or not children:
            return named
        try:
            mine = self.processes.arguments(own.pid)
        except (SourceAbsent, SourceFailed):
            return []
        return [child for child in children if self._is_forked(child, mine)]

    def _is_forked(self, child: Stat, parents_arguments: list[str]) -> bool:
        try:
            arguments = self.processes.arguments(child.pid)
        except (SourceAbsent, SourceFailed):
            return False
        return _SPAWNED in arguments or (arguments == parents_arguments and arguments != [""])

    def _remember(self, memory: _Memory, workers: list[Stat], absences: Absences) -> None:
        now = {(worker.pid, worker.start_ticks): worker.cpu_s for worker in workers}
        memory.started += len(now.keys() - memory.cpu_s.keys())
        changed = now.keys() != memory.cpu_s.keys()
        memory.ended_cpu_s += sum(s for key, s in memory.cpu_s.items() if key not in now)
        memory.cpu_s = now
        if changed or self._runs - memory.looked_at >= _AFFINITY_RUNS:
            memory.looked_at = self._runs
            masks = [absences.get("affinity", self.processes.status, w.pid) for w in workers]
            usable = {cpu for mask in masks if mask for cpu in mask.cpus_allowed or ()}
            memory.usable_cpus = len(usable) or None


def _own_word(newest: Newest, pid: int) -> HostUse:
    """What the probe in that process has read of itself; nothing where there is none."""
    snapshot = newest()
    training = snapshot.get(TrainingSection) if snapshot is not None else None
    for process in training.processes if training is not None else ():
        if process.host_pid == pid and process.ended is None and process.memory is not None:
            return process.memory.host
    return HostUse()

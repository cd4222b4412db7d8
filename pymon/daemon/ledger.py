"""What a daemon remembers for the end of a run: processes, incidents and captures, within bounds."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pymon.base.clock import Clock
from pymon.model.diagnosis import Diagnosis
from pymon.model.finding import Incident
from pymon.model.memory import ProcessMemory
from pymon.model.run import RunCapture, RunProcess, RunSummary
from pymon.model.snapshot import Section, Snapshot
from pymon.model.training import Counting, TrainingProcess, TrainingSection

PROCESSES_MAX = 1024
EVENTS_MAX = 256
STEPS_MAX = 4096  # of a process, for its median: as many as its own ring holds


@dataclass(slots=True)
class _Seen:
    process: TrainingProcess
    began_real_ns: int
    seen_real_ns: int
    steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_MAX))


@dataclass(slots=True)
class Ledger:
    """Kept in memory; a restarted daemon knows processes again by their pages, and past captures no more."""

    clock: Clock
    began_real_ns: int = 0
    incidents_total: dict[str, int] = field(default_factory=dict)  # by detector
    captures_total: dict[tuple[str, str], int] = field(default_factory=dict)  # by kind and status
    captures: deque[RunCapture] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))
    _incidents: dict[str, Incident] = field(default_factory=dict)
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began_real_ns = self.clock.real_ns()

    def note(self, snapshot: Snapshot) -> None:
        """The newest state of every process."""
        section = snapshot.get(TrainingSection)
        for process in section.processes if section else ():
            seen = self._seen.get(process.attach_id)
            if seen is None:
                if len(self._seen) >= PROCESSES_MAX:
                    del self._seen[next(iter(self._seen))]
                began_ns = process.attached_real_ns or snapshot.taken_real_ns
                seen = self._seen[process.attach_id] = _Seen(process, began_ns, 0)
            if process.ended is None or seen.process.ended is None:
                seen.seen_real_ns = snapshot.taken_real_ns
            seen.process = process
            seen.steps_s.extend(step.duration_s for step in process.new_steps if not step.profiled)

    def begin(self, incident: Incident) -> None:
        """An incident began."""
        detector = incident.finding.detector
        self.incidents_total[detector] = self.incidents_total.get(detector, 0) + 1
        self.update((incident,))

    def update(self, incidents: Iterable[Incident]) -> None:
        """Their newest state."""
        for incident in incidents:
            self._incidents[incident.incident_id] = incident
        while len(self._incidents) > EVENTS_MAX:
            del self._incidents[next(iter(self._incidents))]

    def add_capture(self, capture: RunCapture) -> None:
        """A capture has ended in receipts; its diagnosis may be in it already."""
        for receipt in capture.receipts:
            key = (receipt.kind.value, receipt.status.value)
            self.captures_total[key] = self.captures_total.get(key, 0) + 1
        self.captures.append(capture)

    def owners(self, run_id: str) -> set[int]:
        """Whose processes `summary` would tell of."""
        return {
            seen.process.uid
            for seen in list(self._seen.values())
            if not run_id or seen.process.run_id == run_id
        }

    def summary(self, run_id: str, report_path: str | None) -> RunSummary:
        """Of one run; of all processes where `run_id` is empty."""
        seen = [s for s in self._seen.values() if not run_id or s.process.run_id == run_id]
        attach_ids = {one.process.attach_id for one in seen}
        pids = {one.process.pid for one in seen}
        incidents = tuple(
            i for i in self._incidents.values() if i.finding.subject.attach_id in attach_ids
        )
        captures = tuple(
            c for c in self.captures if any(receipt.pid in pids for receipt in c.receipts)
        )
        began_ns = min((one.began_real_ns for one in seen), default=self.began_real_ns)
        ended_ns = max((one.seen_real_ns for one in seen), default=began_ns)
        seen.sort(key=lambda one: (one.process.rank is None, one.process.rank, one.process.pid))
        return RunSummary(
            run_id=run_id,
            began_real_ns=began_ns,
            wall_s=max(0.0, (ended_ns - began_ns) / 1e9),
            processes=tuple(_run_process(one) for one in seen),
            incidents=incidents,
            captures=captures,
            advice_first=_advice(captures, incidents),
            report_path=report_path,
        )


def _run_process(seen: _Seen) -> RunProcess:
    process = seen.process
    step_s = process.step_histogram.sum_s
    return RunProcess(
        rank=process.rank,
        pid=process.pid,
        script=process.script,
        steps_total=process.steps_total,
        estimated=process.counting is Counting.BACKWARD,
        steps_lost_total=process.steps_lost_total,
        median_step_s=statistics.median(seen.steps_s) if seen.steps_s else None,
        phase_s_total=process.phase_s_total,
        own_cost_ratio=process.own_cost_s_total / step_s if step_s > 0 else None,
        ended=process.ended,
        allocated_peak_bytes=_peak_bytes(process.memory),
    )


def _peak_bytes(memory: ProcessMemory | None) -> int | None:
    peaks = [one.allocated_peak_bytes for one in memory.allocators] if memory is not None else []
    return max((peak for peak in peaks if peak is not None), default=None)


def _advice(captures: Iterable[RunCapture], incidents: Iterable[Incident]) -> str | None:
    """The first advice of the strongest diagnosis; without one, what a detector saw; else nothing stood out."""
    found: list[Diagnosis] = [capture.diagnoses[0] for capture in captures if capture.diagnoses]
    if found:
        best = max(found, key=lambda diagnosis: diagnosis.gain_at_most_ratio or 0.0)
        return f"{best.title}. {best.advice[0]}" if best.advice else best.title
    for incident in incidents:
        return f"{incident.finding.detector}: {incident.finding.summary}"
    return None


def for_history(snapshot: Snapshot, kinds: tuple[type[Section], ...]) -> Snapshot:
    """What detectors read of it: quarters of an hour of all else would fill the memory.

    Of a training process neither single steps, which are read once, nor the GPU's sums, events and memory (10 kB a
    tick).
    """
    outcomes = []
    for outcome in snapshot.outcomes:
        section = outcome.section
        if isinstance(section, TrainingSection):
            bare = tuple(
                replace(
                    process, new_steps=(), cuda_events=None, cupti=None, events=None, memory=None
                )
                for process in section.processes
            )
            section = TrainingSection(bare)
        if isinstance(section, kinds):
            outcomes.append(replace(outcome, section=section))
    return replace(snapshot, outcomes=tuple(outcomes))

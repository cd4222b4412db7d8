"""Step times by tick: what detectors compare, so that a loop of 1 ms and one of a minute are judged alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pymon.model.finding import Subject
from pymon.model.snapshot import Snapshot
from pymon.model.training import TrainingProcess, TrainingSection


@dataclass(frozen=True, slots=True)
class Tick:
    """The steps of one process that ended within one tick, without those that a capture disturbed."""

    steps: int
    median_s: float
    phase_mean_s: tuple[float, ...]  # one per PHASES


def living(recent: Sequence[Snapshot]) -> tuple[TrainingProcess, ...]:
    """The processes of the newest snapshot that still run."""
    section = recent[-1].get(TrainingSection)
    if section is None:
        return ()
    return tuple(process for process in section.processes if process.ended is None)


def ticks_of(recent: Sequence[Snapshot], attach_id: str, warm_up_steps: int) -> list[Tick]:
    """The ticks in which this process finished steps, oldest first, from step `warm_up_steps` on."""
    found = []
    for snapshot in recent:
        section = snapshot.get(TrainingSection)
        for process in section.processes if section else ():
            if process.attach_id != attach_id or process.new_median_s is None:
                continue
            if process.steps_total - process.new_steady >= warm_up_steps:
                found.append(
                    Tick(process.new_steady, process.new_median_s, process.new_phase_mean_s)
                )
    return found


def median_and_mad(values: Sequence[float]) -> tuple[float, float]:
    """Median, and the median distance from it; of at least one value."""
    middle = statistics.median(values)
    return middle, statistics.median(abs(value - middle) for value in values)


def subject_of(process: TrainingProcess) -> Subject:
    """Whom a finding about this process names."""
    return Subject(process.attach_id, process.pid, process.rank, process.job_id)

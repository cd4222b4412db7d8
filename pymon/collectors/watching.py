"""Which processes are looked at by the collectors that look at processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pymon.model.jobs import JobsSection
from pymon.model.snapshot import Snapshot
from pymon.model.training import TrainingSection

Newest = Callable[[], Snapshot | None]
WATCHED_MAX = 128  # a node's GPUs many times over, and a bound against one who attaches without end


def no_snapshot() -> Snapshot | None:
    """Where nothing has been collected yet."""
    return None


@dataclass(frozen=True, slots=True)
class Watched:
    """A training process. `pid` is its number in the /proc that is read, `label_pid` the one in its series."""

    pid: int
    label_pid: int
    rank: int | None
    job_id: str


def watched(newest: Newest) -> tuple[Watched, ...]:
    """Those that the tick before knew: with a probe, and without one where they hold a GPU."""
    snapshot = newest()
    if snapshot is None:
        return ()
    if jobs := snapshot.get(JobsSection):
        return tuple(Watched(p.pid, p.label_pid, p.rank, p.label_job_id) for p in jobs.processes)
    training = snapshot.get(TrainingSection)  # where attribution is switched off
    living = [p for p in training.processes if p.ended is None] if training else []
    found = [Watched(p.host_pid, p.pid, p.rank, p.job_id) for p in living if p.host_pid is not None]
    return tuple(found[:WATCHED_MAX])

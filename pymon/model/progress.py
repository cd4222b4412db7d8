"""What a training process does beside its steps, and where its wall time goes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pymon.model.loader import Loader
from pymon.model.snapshot import Section


class RunState(Enum):
    """What a process is doing now."""

    STARTING = "starting"  # before the end of its first step
    TRAINING = "training"
    EVALUATING = "evaluating"
    CHECKPOINTING = "checkpointing"


@dataclass(frozen=True, slots=True)
class Progress:
    """From the page's run section; totals since the attach, None is not known."""

    state: RunState
    state_age_s: float | None
    process_age_s: float | None  # since the process itself began
    startup_s: float | None  # to the end of the first step; None before it
    first_step_s: float
    evaluations_total: int
    evaluation_batches_total: int
    saves_total: int
    saves_failed_total: int
    background_save_s_total: float
    last_save_real_ns: int | None
    last_save_s: float
    flops_per_sample: int | None
    flops_per_token: int | None
    restarts: int | None  # by the launcher
    loader: Loader


# Where the wall time of a job goes; they sum to it.
WALL_STATES = ("startup", "training", "evaluation", "checkpoint", "stall", "restart", "other")


@dataclass(frozen=True, slots=True)
class WallTime:
    """One rank of a job, over all processes that it had. `pid` is the newest's."""

    rank: int | None
    job_id: str
    pid: int
    spent_s_total: tuple[
        float, ...
    ]  # one per WALL_STATES, up to the last step, evaluation or save that ended
    restarts_total: (
        int | None
    )  # None: neither the launcher counts them, nor has the job a name to know it by


@dataclass(frozen=True, slots=True)
class GoodputSection(Section):
    """All ranks with a probe."""

    ranks: tuple[WallTime, ...]

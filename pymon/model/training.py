"""What the node knows about the training processes that carry a probe."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pymon.model.collectives import Collectives
from pymon.model.distribution import Histogram
from pymon.model.events import TrainingEvents
from pymon.model.gpu_work import CudaEvents, CuptiSums
from pymon.model.memory import ProcessMemory
from pymon.model.progress import Progress
from pymon.model.recorded import NO_WAITS, RecordedCollectives, Waits
from pymon.model.snapshot import Section

# Phases of a step, in the page's slot order (csrc/core/layout.h); they part the step's wall time without overlap.
PHASES = ("data_wait", "forward", "backward", "optimizer", "other")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One finished step, from the page's ring."""

    step: int  # 1 is the first step of the process
    end_mono_ns: int
    duration_s: float
    phases_s: tuple[float, ...]  # one per PHASES; empty where the probe's budget left them away
    backwards: int
    optimizer_calls: int
    batches: int
    profiled: bool  # a capture ran: its time is not the training's
    estimated: bool  # counted from backwards, since no optimizer hook fired
    samples: int | None = None  # None: not known
    tokens: int | None = None
    evaluation_s: float = 0.0  # before it, and in none of its phases
    checkpoint_s: float = 0.0  # likewise


class Shed(Enum):
    """What the probe leaves away to hold its budget, each with all before it; OFF by `pymon disarm`."""

    NOTHING = "nothing"
    KERNELS = "kernels"  # the sums over CUPTI's records
    PHASES = "phases"  # the parts of a step, and their GPU times
    RECORDS = "records"  # single steps: what is left is their number and time, once a second
    OFF = "off"


class Counting(Enum):
    """How the probe counts steps (notes in docs/probe.md)."""

    NONE = "none"  # nothing seen yet
    OPTIMIZER = "optimizer"
    EXPLICIT = "explicit"  # pymon.step()
    BACKWARD = "backward"  # estimated


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """One attached process. Totals are since its attach and survive a restart of the daemon."""

    attach_id: str
    pid: int
    uid: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    job_id: str
    run_id: str
    script: str
    attached_real_ns: int
    # None while it lives; else `exited`, `exit code 1`, `killed by SIGKILL`, the same with `, out of memory`,
    # `replaced by exec`, `disconnected`, `page dropped: ...`, or `unknown`.
    ended: str | None
    counting: Counting
    steps_total: int
    steps_lost_total: int  # overwritten in the ring before the daemon read them
    backwards_total: int
    optimizer_calls_total: int
    batches_total: int
    phase_s_total: tuple[float, ...]  # one per PHASES
    step_histogram: Histogram
    own_cost_s_total: float  # time spent in the probe's hooks
    open_step_age_s: float | None  # since the last step boundary; None before the first
    capturing: bool
    new_steps: tuple[StepRecord, ...]  # finished since the previous tick, oldest first
    loader_workers: int | None = (
        None  # num_workers of the training loader; None where no loader was seen
    )
    # Of the new steps that no capture disturbed; None or empty where there were none.
    new_steady: int = 0  # how many
    new_median_s: float | None = None
    new_phase_mean_s: tuple[float, ...] = ()  # one per PHASES
    user_phase_s_total: tuple[tuple[str, float], ...] = ()  # pymon.phase(name): may overlap PHASES
    samples_total: int | None = None  # None: not known
    tokens_total: int | None = None
    stall_s_total: float = 0.0  # of the step time: what blocked steps took beyond the usual
    usual_step_s: float | None = None  # None before the second step
    evaluation_s_total: float = 0.0  # between steps, in none of the phases
    checkpoint_s_total: float = 0.0  # likewise
    progress: Progress | None = None  # None: the page, of an older probe, does not tell
    cuda_events: CudaEvents | None = None  # None: the page, of an older probe, has no such section
    cupti: CuptiSums | None = None
    shed: Shed = Shed.NOTHING
    sheds_total: int = 0  # layers that the budget took away
    overhead_ratio: float | None = (
        None  # the probe's cost per step time of its last window, its threads' included
    )
    doing: str | None = None  # of PHASES, what goes on now; None: nothing yet, or not told
    doing_age_s: float | None = None  # since it began
    events: TrainingEvents | None = None
    collectives: Collectives | None = None
    memory: ProcessMemory | None = None
    recorded: RecordedCollectives | None = None  # None likewise, and before the first look
    waits: Waits = NO_WAITS
    # By the kernel, in the daemon's own pid namespace; None where the process lies outside of it.
    host_pid: int | None = None


@dataclass(frozen=True, slots=True)
class TrainingSection(Section):
    """All processes with a probe on this node, those that ended lately included."""

    processes: tuple[TrainingProcess, ...]

"""What is left of a training process that has ended: its last steps, and how it ended as far as that is known."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.model.events import TrainingEvent
from pymon.model.memory import ProcessMemory
from pymon.model.progress import RunState
from pymon.model.training import Counting, StepRecord


@dataclass(frozen=True, slots=True)
class BlackBox:
    """Read from the page that the process left behind; what nobody could see is None."""

    attach_id: str
    pid: int
    uid: int
    rank: int | None
    world_size: int | None
    job_id: str
    run_id: str
    script: str
    python: str
    torch: str
    attached_real_ns: int
    ended_real_ns: int  # when the daemon saw it
    # As `TrainingProcess.ended`.
    ended: str
    evidence: tuple[str, ...]  # what the kernel said and counted about this process
    counting: Counting | None  # None, as the two below: the process ended while it wrote its totals
    steps_total: int | None
    capturing: bool | None
    doing: str | None  # of PHASES, what went on at the end; None: between two steps, or not told
    doing_s: float | None  # how long, when the end was seen
    since_step_s: float | None  # from the last step's end until the end was seen
    steps: tuple[StepRecord, ...]  # the last ones, oldest first, up to 4,096
    step_began_real_ns: tuple[int, ...] = ()  # one per step, for the trace
    memory: ProcessMemory | None = (
        None  # as it was read last; None: the probe, an older one, does not tell
    )
    state: RunState | None = None  # what it was at beside single steps
    state_s: float | None = None  # how long, when the end was seen
    events: tuple[TrainingEvent, ...] = ()  # the last ones, oldest first, up to 256
    event_began_real_ns: tuple[int, ...] = ()  # one per event
    last_event_s: float | None = None  # from the last event's end until the end was seen

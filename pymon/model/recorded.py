"""Single collectives, as torch's Flight Recorder and DDP's logger tell of them, and how ranks waited for each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveOp:
    """One operation of one group; sums over the records that were read."""

    group: str
    backend: str
    name: str
    count_total: int
    bytes_total: int  # of each the larger of inputs and outputs
    timed_total: int  # of these, with a duration
    time_s_total: float


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far this rank is in one group, by the group's own numbers, when the recorder was last read."""

    group: str
    backend: str
    enqueued: int
    started: int | None  # None: the backend does not tell
    completed: int
    open_op: str | None  # that a rank which stands still is in; None: none, or it went on since
    open_bytes: int
    open_s: float | None  # since it was begun


@dataclass(frozen=True, slots=True)
class RecordedCollectives:
    """What one process's Flight Recorder said, and what it did not."""

    groups: tuple[GroupProgress, ...]
    ops: tuple[CollectiveOp, ...]
    unread_total: int  # collectives overwritten before they were read, or without room in the page
    read_cpu_s_total: float  # what reading cost
    reason: str  # what is not read and why


@dataclass(frozen=True, slots=True)
class GroupWait:
    """What one rank waited, over the collectives whose beginning is known of all of the group's ranks on this node.

    The wait is until the last of these began: of a group that spans nodes it is the least that it can have been.
    """

    group: str
    backend: str
    matched_total: int
    wait_s_total: float


@dataclass(frozen=True, slots=True)
class DdpWait:
    """The same over DDP's iterations that its logger timed on all ranks of this node, with the transfer that followed:
    from the last rank's beginning to the first one's end.
    """

    matched_total: int
    wait_s_total: float
    transfer_s_total: float


@dataclass(frozen=True, slots=True)
class Waits:
    """Of one process; the one that the others wait for has the least."""

    groups: tuple[GroupWait, ...] = ()
    ddp: DdpWait | None = None


NO_WAITS = Waits()

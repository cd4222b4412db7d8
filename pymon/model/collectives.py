"""Collectives of a training process: how far each group has come, and what DDP's own logger has timed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One group of torch.distributed; `sequence_total` counts collectives begun, DDP's own included."""

    name: str
    size: int
    rank: int  # of this process in it
    sequence_total: int
    idle_s: float  # since that number was first seen


@dataclass(frozen=True, slots=True)
class Collectives:
    """DDP's figures are sums over the iterations that it timed and that the probe read, one a second at most.

    The communication of an iteration lasts from its first bucket's begin to its last one's end, so it holds the wait
    for the rank that arrives last: that one has the least of it.
    """

    groups_total: int  # `groups` holds the first sixteen
    groups: tuple[ProcessGroup, ...]
    ddp_samples_total: int
    ddp_comm_s_total: float
    ddp_overlap_s_total: float  # of it, beside the backward pass
    ddp_last_iteration: int
    ddp_last_begin_real_ns: int  # this rank's arrival
    ddp_bytes: int  # of the gradients of one iteration

"""What no honest page says. A page that lies is dropped: the others are read on as if it were not there."""

from __future__ import annotations

from pymon.collectors.gpu_work import MAX_COUNT
from pymon.link.page import TrainSample

# Looks in a row at a lock that is held. A look waits for a thousand copies (csrc/core/page_reader.h): no writer at work
# is met ten times; one that was stopped in mid copy may come back when it goes on.
STUCK_LOOKS = 10
_COUNTS = (
    "steps_total",
    "backwards_total",
    "optimizer_calls_total",
    "batches_total",
    "prefetches_total",
    "sheds_total",
)
_TIMES = ("step_ns_total", "own_ns_total", "evaluation_ns_total", "checkpoint_ns_total")


def lie(before: TrainSample | None, now: TrainSample, newest_step: int) -> str:
    """Why this state cannot be, given the one before it and the ring's newest step; empty where it can."""
    for name in _COUNTS:
        if getattr(now, name) > MAX_COUNT:
            return f"{name} is {getattr(now, name):,}, more than can have been"
    if newest_step > MAX_COUNT:
        return f"its ring names step {newest_step:,}, more than can have been"
    for name in (*_COUNTS, *_TIMES) if before is not None else ():
        if getattr(now, name) < getattr(before, name):
            return f"{name} fell from {getattr(before, name):,} to {getattr(now, name):,}"
    return ""

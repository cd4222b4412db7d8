"""The loader of a training process, and how many workers it would need."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pymon.model.distribution import Histogram

# A healthy loader of a public trace waits 1.0 % of its step (docs/facts.md): what is left when workers suffice.
HEALTHY_WAIT_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class Loader:
    """Settings of the loader that trains (None or empty: not known); totals since the attach, evaluation left out."""

    workers: int | None
    prefetch_factor: int | None
    pins_memory: bool | None
    persistent_workers: bool | None
    sharing_strategy: str  # file_descriptor, file_system
    start_method: str  # fork, spawn, forkserver
    batch_size: int | None
    started_total: int  # iterations that began, evaluation included
    first_batches_total: int
    first_batch_s_total: (
        float  # from the start of an iteration, in which workers start, to its first batch
    )
    last_first_batch_s: float
    queue_looks_total: int  # how often the queue of ready batches was looked at, before a fetch
    queue_depth_total: int  # sum of its depths
    queue_empty_total: int
    batch_looks_total: int  # batches that were measured
    batch_bytes_total: int  # sum of theirs
    last_batch_bytes: int
    wait_histogram: Histogram  # for each batch

    @property
    def mean_queue_depth(self) -> float | None:
        """Ready batches at a fetch; None where no queue was seen (no workers)."""
        looks = self.queue_looks_total
        return self.queue_depth_total / looks if looks else None


def sufficient_workers(
    workers: int, batch_s: float, wait_s: float, mean_queue_depth: float | None
) -> int | None:
    """How many workers would make batches as fast as they are used; None where more of them would not help.

    `batch_s`: mean time from batch to batch; `wait_s`: of it, the wait for the loader. While the training thread waits,
    all workers are busy, so each takes `workers * batch_s` for a batch (without workers: `wait_s`). The training uses
    one each `batch_s - wait_s`. Enough are therefore

        ceil(workers * batch_s / (batch_s - wait_s))        without workers: ceil(wait_s / (batch_s - wait_s))

    which holds as long as there are processors for them. Waiting under 1 % of the time is none. Where batches are ready
    and it still waits, it is busy itself with unpacking or pinning them.
    """
    used_s = batch_s - wait_s
    if batch_s <= 0 or used_s <= 0:
        return None  # it does nothing but wait: any number would be a guess
    if wait_s / batch_s <= HEALTHY_WAIT_RATIO:
        return workers
    if mean_queue_depth is not None and mean_queue_depth >= 1:
        return None
    return max(1, math.ceil((workers * batch_s if workers else wait_s) / used_s))

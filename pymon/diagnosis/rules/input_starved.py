"""The step waits for its input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from pymon.base.units import count, human_seconds, ratio, seconds
from pymon.model.diagnosis import Bottleneck, Confidence, Diagnosis, Evidence
from pymon.model.trace import LoaderTime, TraceFacts

MOST_WORKERS = 16  # more for one rank is no advice: docs/facts.md, "Workers needed"

# Measured: a batch of 80 floats takes 27 µs in the process itself and 0.66 ms through one worker.
SMALL_BATCH_S = 0.0007
ENOUGH_BATCHES = 3  # fewer cannot tell a slow one from the usual


@dataclass(frozen=True, slots=True)
class InputStarved:
    """Names the data loader, with the number of workers that this run needs.

    Needs: time of DataLoader `__next__` in the window; with a GPU, its idle time under it.
    Holds: the GPU idles under `__next__` for at least `min_share_ratio` of the step; without GPU
        events, `__next__` itself takes that share. The limit is calibrated on the public traces
        named in docs/facts.md.
    Ruled out: a long `__next__` while the GPU is busy; one slow batch among quick ones, as at the
        start of an epoch; a GPU whose events were lost.
    Errors: none; lacking evidence gives None.
    """

    name: ClassVar[str] = "input_starved"
    min_share_ratio: float = 0.10

    def judge(self, facts: TraceFacts) -> Diagnosis | None:
        """Weigh one trace."""
        loader = facts.loader
        if loader is None or not facts.usable:
            return None
        waiting_s = facts.gpu.idle_by_data_s if facts.gpu else loader.wait_s
        share = facts.share(waiting_s)
        if share < self.min_share_ratio or _one_slow_batch(facts, loader, self.min_share_ratio):
            return None
        return Diagnosis(
            rule=self.name,
            bottleneck=Bottleneck.DATA,
            title=_title(loader, share, facts.gpu is not None),
            confidence=Confidence.MEDIUM if loader.worker_processes is None else Confidence.HIGH,
            evidence=tuple(_evidence(facts, loader, share)),
            advice=tuple(_advice(facts, loader)),
            gain_at_most_ratio=share,
        )


def _one_slow_batch(facts: TraceFacts, loader: LoaderTime, limit: float) -> bool:
    """The first batch of a capture or an epoch is often slow; the others must show it too.

    Waits for worker processes come in bursts, and are not judged so.
    """
    if loader.worker_processes or loader.calls_total < ENOUGH_BATCHES:
        return False
    others = loader.calls_total - 1
    usual_s = (loader.wait_s - loader.longest_s) / others * loader.calls_total
    return facts.share(usual_s) < limit


def _title(loader: LoaderTime, share: float, has_gpu: bool) -> str:
    who = "the GPU stands idle" if has_gpu else "the training thread waits"
    why = {False: "which loads in the training process itself", True: "whose workers are too slow"}
    tail = f", {why[loader.worker_processes]}" if loader.worker_processes is not None else ""
    return f"Starved of input: for {ratio(share)} of the step {who} for the DataLoader{tail}"


def _evidence(facts: TraceFacts, loader: LoaderTime, share: float) -> list[Evidence]:
    subject = "GPU idle while" if facts.gpu else "Step time in which"
    items = [
        Evidence(f"{subject} the loader fetched the next batch", ratio(share)),
        Evidence("Time in the loader per batch", seconds(loader.wait_s / loader.calls_total)),
        Evidence("Batches fetched in the window", count(loader.calls_total)),
        Evidence("Longest wait for one batch", seconds(loader.longest_s)),
    ]
    if facts.step_mean_s is not None:
        items.append(Evidence("Mean step", seconds(facts.step_mean_s)))
    return items


def _advice(facts: TraceFacts, loader: LoaderTime) -> list[str]:
    rest_s = max(facts.window_s - loader.wait_s, 1e-9)
    if loader.worker_processes:
        return _more_throughput(facts, rest_s)
    per_batch_s, rest_per_batch_s = loader.wait_s / loader.calls_total, rest_s / loader.calls_total
    if per_batch_s < SMALL_BATCH_S and not loader.worker_processes:
        return [
            "Take larger batches, or index the tensors directly, without a DataLoader: at "
            f"{human_seconds(per_batch_s)} a batch, handing it over from a worker would cost more "
            "than loading it."
        ]
    needed = math.ceil(per_batch_s / rest_per_batch_s)
    sums = (
        f"a batch takes {human_seconds(per_batch_s)} to load and the rest of its step "
        f"{human_seconds(rest_per_batch_s)}"
    )
    if loader.worker_processes is None:
        return [f"Load batches in worker processes that keep up: {sums}."]
    if needed > MOST_WORKERS:
        return [
            f"Make loading a batch cheaper first (decode, transform, storage): {sums}, "
            f"so even {MOST_WORKERS} workers would not keep up.",
            f"Meanwhile DataLoader(num_workers={MOST_WORKERS}), or as many as the process has "
            "free cores.",
        ]
    advice = [
        f"DataLoader(num_workers={needed + 1}, persistent_workers=True): {sums}, so {needed} "
        f"worker{'s' if needed > 1 else ''} would keep up, and one more takes up jitter. "
        "It needs as many free cores per rank; measure again after the change.",
        "Where cores are short, make loading cheaper: precompute what does not change per epoch, "
        "decode less, vectorise the transforms.",
    ]
    if facts.gpu is not None and facts.gpu.pageable_to_device_bytes > 0:
        advice.append(
            "Add pin_memory=True and .to(device, non_blocking=True): batches go to the GPU from "
            "pageable memory."
        )
    return advice


def _more_throughput(facts: TraceFacts, rest_s: float) -> list[str]:
    factor = facts.window_s / rest_s
    return [
        f"The workers must deliver {factor:.1f} times as many batches a second. If they keep "
        "their cores busy, make their work cheaper or raise num_workers by that factor, as far "
        "as cores are free.",
        "If they are not busy, the storage is the limit: cache, shard or copy the data closer; "
        "a larger prefetch_factor evens out jitter but adds no throughput.",
    ]

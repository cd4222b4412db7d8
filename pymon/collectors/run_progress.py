"""The run section of a trainer's page -> the model. Whatever a trainer claims is bounded to what a metric can hold."""

from __future__ import annotations

from pymon.collectors.gpu_work import bounded_count
from pymon.link import layout
from pymon.link.run_section import LoaderSample, RunSample
from pymon.model.distribution import Histogram
from pymon.model.loader import Loader
from pymon.model.progress import Progress, RunState

_STATES = {
    "starting": RunState.STARTING,
    "training": RunState.TRAINING,
    "evaluating": RunState.EVALUATING,
    "checkpointing": RunState.CHECKPOINTING,
}


def progress(sample: RunSample | None, now_ns: int) -> Progress | None:
    """The section with its times in seconds; `now_ns` on the monotonic clock."""
    if sample is None:
        return None
    return Progress(
        state=_STATES[sample.state],
        state_age_s=_age_s(sample.state_since_mono_ns or None, now_ns),
        process_age_s=_age_s(sample.process_start_mono_ns, now_ns),
        startup_s=None if sample.startup_ns is None else sample.startup_ns / 1e9,
        first_step_s=sample.first_step_ns / 1e9,
        evaluations_total=bounded_count(sample.evaluations_total),
        evaluation_batches_total=bounded_count(sample.evaluation_batches_total),
        saves_total=bounded_count(sample.saves_total),
        saves_failed_total=bounded_count(sample.saves_failed_total),
        background_save_s_total=sample.background_save_ns_total / 1e9,
        last_save_real_ns=sample.last_save_real_ns,
        last_save_s=sample.last_save_ns / 1e9,
        flops_per_sample=sample.flops_per_sample,
        flops_per_token=sample.flops_per_token,
        restarts=None if sample.restarts is None else bounded_count(sample.restarts),
        loader=_loader(sample.loader),
    )


def _loader(sample: LoaderSample) -> Loader:
    return Loader(
        workers=sample.workers,
        prefetch_factor=sample.prefetch_factor,
        pins_memory=sample.pins_memory,
        persistent_workers=sample.persistent_workers,
        sharing_strategy=sample.sharing_strategy,
        start_method=sample.start_method,
        batch_size=sample.batch_size,
        started_total=bounded_count(sample.started_total),
        first_batches_total=bounded_count(sample.first_batches_total),
        first_batch_s_total=sample.first_batch_ns_total / 1e9,
        last_first_batch_s=sample.last_first_batch_ns / 1e9,
        queue_looks_total=bounded_count(sample.queue_looks_total),
        queue_depth_total=bounded_count(sample.queue_depth_total),
        queue_empty_total=bounded_count(sample.queue_empty_total),
        batch_looks_total=bounded_count(sample.batch_looks_total),
        batch_bytes_total=bounded_count(sample.batch_bytes_total),
        last_batch_bytes=bounded_count(sample.last_batch_bytes),
        wait_histogram=Histogram(
            layout.HISTOGRAM_FIRST_BOUND_NS / 1e9,
            tuple(bounded_count(count) for count in sample.wait_histogram),
            sample.wait_ns_total / 1e9,
        ),
    )


def _age_s(since_ns: int | None, now_ns: int) -> float | None:
    return None if since_ns is None else max(0, now_ns - since_ns) / 1e9

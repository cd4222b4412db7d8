"""The metric families of what a run does beside its steps, in the order of writing."""

from __future__ import annotations

from typing import Final

from pymon.model.metric import Metric

PROCESS: Final = ("rank", "job_id", "pid")

RUN_METRICS: Final[tuple[Metric, ...]] = (
    Metric("pymon_wall_seconds_total", "counter", "Wall time of a rank, over all processes that it had, by `state`: "
           "startup, training, evaluation, checkpoint, stall, restart, other; up to the last step that ended.",
           ("state", *PROCESS)),
    Metric("pymon_restarts_total", "counter", "How often the rank was started again, by its launcher or as seen here.",
           PROCESS),
    Metric("pymon_process_state", "gauge", "1 for what the process does now (starting, training, evaluating, "
           "checkpointing), 0 for the others.", ("state", *PROCESS)),
    Metric("pymon_samples_total", "counter", "Samples of the finished steps, where the user or the batch's shape tells "
           "them.", PROCESS),
    Metric("pymon_tokens_total", "counter", "Tokens likewise, padding included.", PROCESS),
    Metric("pymon_samples_per_second", "gauge", "Over the steps that ended in this tick.", PROCESS),
    Metric("pymon_tokens_per_second", "gauge", "Likewise.", PROCESS),
    Metric("pymon_model_flops_utilisation_ratio", "gauge", "Operations of the model, as the user gives them, against "
           "the dense bfloat16 peak of the GPUs that the process holds, over the steps that ended in this tick.",
           PROCESS),
    Metric("pymon_evaluations_total", "counter", "Evaluations: passes over a loader without a backward pass.", PROCESS),
    Metric("pymon_evaluation_batches_total", "counter", "Batches of them, which are in pymon_batches_total.", PROCESS),
    Metric("pymon_evaluation_seconds_total", "counter", "Time of evaluations, which is in no step.", PROCESS),
    Metric("pymon_checkpoint_saves_total", "counter", "Checkpoint saves by `outcome`: succeeded, failed.",
           ("outcome", *PROCESS)),
    Metric("pymon_checkpoint_seconds_total", "counter", "Time that saves took from the training thread, which is in no "
           "step.", PROCESS),
    Metric("pymon_checkpoint_background_seconds_total", "counter", "Time of saves in other threads.", PROCESS),
    Metric("pymon_last_checkpoint_timestamp_seconds", "gauge", "When the last save succeeded, in Unix time.", PROCESS),
    Metric("pymon_stall_seconds_total", "counter", "Of the step time, what steps of five times the usual or more took "
           "beyond it.", PROCESS),
    Metric("pymon_loader_info", "gauge", "Settings of the loader that trains; always 1.",
           (*PROCESS, "workers", "prefetch_factor", "pin_memory", "persistent_workers", "sharing_strategy",
            "start_method", "batch_size")),
    Metric("pymon_loader_wait_seconds", "histogram", "Wait for each batch, evaluation left out, in doubling buckets.",
           PROCESS),
    Metric("pymon_loader_started_total", "counter", "Iterations over a loader that began, evaluation included.",
           PROCESS),
    Metric("pymon_loader_first_batches_total", "counter", "First batches of an iteration, evaluation left out.",
           PROCESS),
    Metric("pymon_loader_first_batch_seconds_total", "counter", "Time from the start of an iteration, in which workers "
           "start, to its first batch.", PROCESS),
    Metric("pymon_loader_queue_depth", "gauge", "Ready batches in the queue as the training thread asks for one; mean "
           "of all looks, ten a second at most.", PROCESS),
    Metric("pymon_loader_queue_empty_ratio", "gauge", "Looks that found the queue empty.", PROCESS),
    Metric("pymon_loader_batch_bytes", "gauge", "Size of the tensors of the batch that was measured last.", PROCESS),
    Metric("pymon_loader_workers_sufficient", "gauge", "How many workers would make batches as fast as they are used, "
           "since the attach (docs/probe.md has the formula); absent where more of them would not help.", PROCESS),
)  # fmt: skip

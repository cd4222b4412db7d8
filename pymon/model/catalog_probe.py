"""The metric families of what the probe sees beside steps and phases, in the order of writing."""

from __future__ import annotations

from typing import Final

from pymon.model.metric import Metric

PROCESS: Final = (
    "rank",
    "job_id",
    "pid",
)  # labels of a training process; the rest is in pymon_process_info

PROBE_METRICS: Final[tuple[Metric, ...]] = (
    Metric("pymon_training_events_total", "counter", "Events that explain a slow step, by kind: garbage collections "
           "(`gc_young`, `gc_full`), `compile`, `recompile`, `graph_break`, `checkpoint_save` (training waits), "
           "`checkpoint_background`, `graph_capture`, `cache_flush`. A kind is there from its first event on.",
           ("kind", *PROCESS)),
    Metric("pymon_training_event_seconds_total", "counter", "Time that they took.", ("kind", *PROCESS)),
    Metric("pymon_training_event_last_step", "gauge", "The step in which the newest one fell, 1 for the first.",
           ("kind", *PROCESS)),
    Metric("pymon_cudnn_benchmark", "gauge", "1 where torch.backends.cudnn.benchmark is on: each new input shape costs "
           "a search.", PROCESS),
    Metric("pymon_ddp_iterations_sampled_total", "counter", "Iterations whose communication DDP's own logger timed and "
           "the probe read, one a second at most.", PROCESS),
    Metric("pymon_ddp_communication_seconds_total", "counter", "Of these, from the first bucket's begin to the last "
           "one's end. The rank with the least of it is the one that the others wait for.", PROCESS),
    Metric("pymon_ddp_overlap_seconds_total", "counter", "Of it, what lay beside the backward pass.", PROCESS),
    Metric("pymon_collective_sequence", "gauge", "Collectives that a process group has begun, DDP's own included: of "
           "ranks that stand still the one behind has the smallest.", ("group", *PROCESS)),
)  # fmt: skip

"""The metric families of what the probe sees beside steps and phases, in the order of writing."""

from __future__ import annotations

from typing import Final

from pymon.model.metric import Metric

PROCESS: Final = (
    "rank",
    "job_id",
    "pid",
)  # labels of a training process; the rest is in pymon_process_info

ALLOCATOR: Final = ("device", "uuid", *PROCESS)
GROUP: Final = ("group", "backend")

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
    Metric("pymon_allocator_allocated_bytes", "gauge", "Device memory of tensors by torch's CUDA allocator, after a "
           "step; `device` is torch's index, `uuid` as NVML has it or empty.", ALLOCATOR),
    Metric("pymon_allocator_reserved_bytes", "gauge", "What the allocator has taken from the device: that, and what it "
           "caches.", ALLOCATOR),
    Metric("pymon_allocator_active_bytes", "gauge", "Allocated, or freed and still in use by another stream.",
           ALLOCATOR),
    Metric("pymon_allocator_inactive_split_bytes", "gauge", "Free parts of blocks that are in use: fragmentation, "
           "which cannot be given back to the device.", ALLOCATOR),
    Metric("pymon_allocator_requested_bytes", "gauge", "Allocated bytes as they were asked for, before rounding.",
           ALLOCATOR),
    Metric("pymon_allocator_allocated_peak_bytes", "gauge", "The user's own peak of allocated bytes: since the start, "
           "or since they reset it.", ALLOCATOR),
    Metric("pymon_allocator_reserved_peak_bytes", "gauge", "Likewise, of reserved bytes.", ALLOCATOR),
    Metric("pymon_allocator_segments", "gauge", "Segments that the allocator has from the device.", ALLOCATOR),
    Metric("pymon_allocator_retries_total", "counter", "Failed allocations that flushed the whole cache to try again.",
           ALLOCATOR),
    Metric("pymon_allocator_ooms_total", "counter", "Out-of-memory errors raised.", ALLOCATOR),
    Metric("pymon_allocator_device_allocs_total", "counter", "Allocations from the device (cudaMalloc and the like).",
           ALLOCATOR),
    Metric("pymon_allocator_device_frees_total", "counter", "Frees to the device.", ALLOCATOR),
    Metric("pymon_allocator_allocated_slope_bytes", "gauge", "Growth of the allocated bytes per step over the last ten "
           "minutes (Theil-Sen); absent before 100 s.", ALLOCATOR),
    Metric("pymon_allocator_reserved_slope_bytes", "gauge", "Likewise, of reserved bytes.", ALLOCATOR),
    Metric("pymon_process_unique_memory_bytes", "gauge", "Private pages of the process (USS): what its end would free. "
           "Once a minute at most.", PROCESS),
    Metric("pymon_process_shm_held_bytes", "gauge", "Files of /dev/shm that the process holds.", PROCESS),
    Metric("pymon_process_resident_memory_slope_bytes", "gauge", "Growth of its resident memory per step over the last "
           "ten minutes (Theil-Sen); absent before 100 s.", PROCESS),
    Metric("pymon_loader_workers_unique_memory_bytes", "gauge", "Private pages of its loader workers. Once a minute at "
           "most.", PROCESS),
    Metric("pymon_loader_workers_shm_held_bytes", "gauge", "Files of /dev/shm that its loader workers hold and the "
           "process does not: batches on their way.", PROCESS),
    Metric("pymon_collective_completed_sequence", "gauge", "The last collective of the group that had ended with all "
           "before it, when the Flight Recorder was last read: seconds after a rank stands still, else up to "
           "half a minute ago.", (*GROUP, *PROCESS)),
    Metric("pymon_collective_open_seconds", "gauge", "How long a rank that stands still has been in this collective. "
           "The rank that is in none is the one that the others wait for.", (*GROUP, "op", *PROCESS)),
    Metric("pymon_collective_arrivals_matched_total", "counter", "Collectives whose beginning is known of all of the "
           "group's ranks on this node: a sample.", (*GROUP, *PROCESS)),
    Metric("pymon_collective_arrival_wait_seconds_total", "counter", "Of these, the time from this rank's beginning to "
           "the last one's. The rank that waits least is the one that the others wait for.", (*GROUP, *PROCESS)),
    Metric("pymon_ddp_iterations_matched_total", "counter", "Sampled iterations of DDP that were read of all ranks on "
           "this node.", PROCESS),
    Metric("pymon_ddp_arrival_wait_seconds_total", "counter", "Of these, the time from this rank's first bucket to "
           "that of the rank that came last.", PROCESS),
    Metric("pymon_ddp_transfer_seconds_total", "counter", "Of these, the time from there to the end of the first "
           "rank's last bucket.", PROCESS),
    Metric("pymon_collectives_unread_total", "counter", "Collectives that the Flight Recorder overwrote before they "
           "were read, or for which the page had no room; they are in none of the families below.", PROCESS),
    Metric("pymon_flight_recorder_read_seconds_total", "counter", "Processor time that reading it cost, beside the "
           "training.", PROCESS),
    Metric("pymon_collectives_total", "counter", "Collectives begun, by process group and operation; from torch's "
           "Flight Recorder.", (*GROUP, "op", *PROCESS)),
    Metric("pymon_collective_bytes_total", "counter", "Their bytes: of each the larger of inputs and outputs.",
           (*GROUP, "op", *PROCESS)),
    Metric("pymon_collectives_timed_total", "counter", "Of these, those with a duration: NCCL's with "
           "TORCH_NCCL_ENABLE_TIMING=1.", (*GROUP, "op", *PROCESS)),
    Metric("pymon_collective_seconds_total", "counter", "Their durations: wait and transfer.",
           (*GROUP, "op", *PROCESS)),
)  # fmt: skip

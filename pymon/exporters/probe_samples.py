"""What the probe saw beside steps and phases, as samples of the families in pymon/model/catalog_probe.py."""

from __future__ import annotations

from collections.abc import Iterator

from pymon.exporters.sample import Sample
from pymon.model.collectives import Collectives
from pymon.model.events import TrainingEvents
from pymon.model.memory import AllocatorUse, HostUse
from pymon.model.recorded import RecordedCollectives, Waits
from pymon.model.training import TrainingProcess

# Field of the model -> family. What the daemon reads by itself (resident memory, descriptors) is exported from there.
_ALLOCATOR = {
    "allocated_bytes": "pymon_allocator_allocated_bytes",
    "reserved_bytes": "pymon_allocator_reserved_bytes",
    "active_bytes": "pymon_allocator_active_bytes",
    "inactive_split_bytes": "pymon_allocator_inactive_split_bytes",
    "requested_bytes": "pymon_allocator_requested_bytes",
    "allocated_peak_bytes": "pymon_allocator_allocated_peak_bytes",
    "reserved_peak_bytes": "pymon_allocator_reserved_peak_bytes",
    "segments": "pymon_allocator_segments",
    "alloc_retries_total": "pymon_allocator_retries_total",
    "ooms_total": "pymon_allocator_ooms_total",
    "device_allocs_total": "pymon_allocator_device_allocs_total",
    "device_frees_total": "pymon_allocator_device_frees_total",
    "allocated_slope_bytes": "pymon_allocator_allocated_slope_bytes",
    "reserved_slope_bytes": "pymon_allocator_reserved_slope_bytes",
}
_HOST = {
    "uss_bytes": "pymon_process_unique_memory_bytes",
    "shm_bytes": "pymon_process_shm_held_bytes",
    "rss_slope_bytes": "pymon_process_resident_memory_slope_bytes",
    "workers_uss_bytes": "pymon_loader_workers_unique_memory_bytes",
    "workers_shm_bytes": "pymon_loader_workers_shm_held_bytes",
}


def about_probe(process: TrainingProcess, labels: tuple[str, ...]) -> Iterator[Sample]:
    """Nothing of what the process, or its older probe, does not tell."""
    if process.events is not None:
        yield from _about_events(process.events, labels)
    if process.collectives is not None:
        yield from _about_collectives(process.collectives, labels)
    if process.recorded is not None:
        yield from _about_recorded(process.recorded, labels)
        if process.ended is None:
            yield from _about_open(process.recorded, labels)
    yield from _about_waits(process.waits, labels)
    if process.memory is not None and process.ended is None:
        for allocator in process.memory.allocators:
            yield from _fields(
                _ALLOCATOR, allocator, (str(allocator.device), allocator.uuid, *labels)
            )
        yield from _fields(_HOST, process.memory.host, labels)


def _fields(
    families: dict[str, str], of: AllocatorUse | HostUse, labels: tuple[str, ...]
) -> Iterator[Sample]:
    for field, family in families.items():
        if (value := getattr(of, field)) is not None:
            yield family, labels, value


def _about_events(events: TrainingEvents, labels: tuple[str, ...]) -> Iterator[Sample]:
    for sums in events.sums:
        of_kind = (sums.kind, *labels)
        yield "pymon_training_events_total", of_kind, sums.count_total
        if sums.kind != "graph_break":  # it has no time of its own
            yield "pymon_training_event_seconds_total", of_kind, sums.spent_s_total
        yield "pymon_training_event_last_step", of_kind, sums.last_step
    if events.cudnn_benchmark is not None:
        yield "pymon_cudnn_benchmark", labels, events.cudnn_benchmark


def _about_collectives(collectives: Collectives, labels: tuple[str, ...]) -> Iterator[Sample]:
    if collectives.ddp_samples_total:
        yield "pymon_ddp_iterations_sampled_total", labels, collectives.ddp_samples_total
        yield "pymon_ddp_communication_seconds_total", labels, collectives.ddp_comm_s_total
        yield "pymon_ddp_overlap_seconds_total", labels, collectives.ddp_overlap_s_total
    for group in collectives.groups:
        yield "pymon_collective_sequence", (group.name, *labels), group.sequence_total


def _about_recorded(recorded: RecordedCollectives, labels: tuple[str, ...]) -> Iterator[Sample]:
    for group in recorded.groups:
        of_group = (group.group, group.backend)
        yield "pymon_collective_completed_sequence", (*of_group, *labels), group.completed
    if recorded.groups:
        yield "pymon_collectives_unread_total", labels, recorded.unread_total
        yield "pymon_flight_recorder_read_seconds_total", labels, recorded.read_cpu_s_total
    for op in recorded.ops:
        of_op = (op.group, op.backend, op.name, *labels)
        yield "pymon_collectives_total", of_op, op.count_total
        yield "pymon_collective_bytes_total", of_op, op.bytes_total
        if op.timed_total:
            yield "pymon_collectives_timed_total", of_op, op.timed_total
            yield "pymon_collective_seconds_total", of_op, op.time_s_total


def _about_open(recorded: RecordedCollectives, labels: tuple[str, ...]) -> Iterator[Sample]:
    for group in recorded.groups:
        if group.open_s is not None:
            of_op = (group.group, group.backend, group.open_op or "?", *labels)
            yield "pymon_collective_open_seconds", of_op, group.open_s


def _about_waits(waits: Waits, labels: tuple[str, ...]) -> Iterator[Sample]:
    for group in waits.groups:
        of_group = (group.group, group.backend, *labels)
        yield "pymon_collective_arrivals_matched_total", of_group, group.matched_total
        yield "pymon_collective_arrival_wait_seconds_total", of_group, group.wait_s_total
    if waits.ddp is not None:
        yield "pymon_ddp_iterations_matched_total", labels, waits.ddp.matched_total
        yield "pymon_ddp_arrival_wait_seconds_total", labels, waits.ddp.wait_s_total
        yield "pymon_ddp_transfer_seconds_total", labels, waits.ddp.transfer_s_total

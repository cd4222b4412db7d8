"""The GPU sections of a trainer's page -> the model. Whatever a trainer claims is bounded to what a metric can hold."""

from __future__ import annotations

from pymon.link import layout
from pymon.link.gpu_sections import CuptiSample, GpuSample, GpuStepSample, WorkSample
from pymon.model.distribution import Histogram
from pymon.model.gpu_work import CudaEvents, CuptiSums, GpuStep, LayerState, Work

MAX_COUNT = 2**53  # what a metric can hold exactly
_FIRST_BOUND_S = layout.HISTOGRAM_FIRST_BOUND_NS / 1e9


def cuda_events(
    sample: GpuSample | None, steps: tuple[GpuStepSample, ...] = ()
) -> CudaEvents | None:
    """The event layer's section, and the steps it timed since the look before."""
    if sample is None:
        return None
    return CudaEvents(
        state=LayerState(sample.state),
        reason=sample.reason,
        steps_timed_total=bounded_count(sample.steps_timed_total),
        steps_untimed_total=bounded_count(sample.steps_untimed_total),
        step_s_total=sample.step_ns_total / 1e9,
        phase_s_total=tuple(spent_ns / 1e9 for spent_ns in sample.phase_ns_total),
        events_lost_total=bounded_count(sample.dropped_total + sample.failed_total),
        own_cpu_s_total=sample.own_cpu_ns_total / 1e9,
        new_steps=tuple(
            GpuStep(step.step, step.gpu_ns / 1e9, tuple(ns / 1e9 for ns in step.phase_ns))
            for step in steps
        ),
    )


def cupti_sums(sample: CuptiSample | None) -> CuptiSums | None:
    """The CUPTI layer's section."""
    if sample is None:
        return None
    lost = sample.dropped_total + sample.zero_times_total + sample.bad_times_total
    return CuptiSums(
        state=LayerState(sample.state),
        reason=sample.reason,
        records_total=bounded_count(sample.records_total),
        records_lost_total=bounded_count(lost),
        busy_s_total=sample.busy_ns_total / 1e9,
        compute_busy_s_total=sample.compute_busy_ns_total / 1e9,
        nccl_busy_s_total=sample.nccl_busy_ns_total / 1e9,
        nccl_exposed_s_total=sample.nccl_exposed_ns_total / 1e9,
        gap_s_total=sample.gap_ns_total / 1e9,
        gaps_total=bounded_count(sample.gaps_total),
        kernels_total=bounded_count(sample.kernels_total),
        launches_total=bounded_count(sample.launches_total),
        devices=bounded_count(sample.devices),
        host_bytes=bounded_count(sample.host_bytes),
        device_bytes=bounded_count(sample.device_bytes),
        own_cpu_s_total=sample.own_cpu_ns_total / 1e9,
        yielded_s_total=sample.yielded_ns_total / 1e9,
        work=tuple(_work(name, work) for name, work in sample.work),
    )


def _work(name: str, sample: WorkSample) -> Work:
    counts = tuple(bounded_count(count) for count in sample.histogram)
    spent_s = sample.ns_total / 1e9
    return Work(
        name=name,
        count_total=bounded_count(sample.count),
        spent_s_total=spent_s,
        longest_s=sample.ns_max / 1e9,
        bytes_total=bounded_count(sample.bytes_total),
        histogram=Histogram(_FIRST_BOUND_S, counts, spent_s),
    )


def bounded_count(value: int) -> int:
    """What a trainer claims, as far as a metric can hold it."""
    return min(value, MAX_COUNT)

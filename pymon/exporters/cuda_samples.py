"""What the GPU layers of a training process measured, as samples of the catalogue's pymon_cuda_ families."""

from __future__ import annotations

from collections.abc import Iterator

from pymon.exporters.sample import Sample
from pymon.model.gpu_work import CudaEvents, CuptiSums, LayerState
from pymon.model.training import PHASES, TrainingProcess


def about_cuda(process: TrainingProcess, labels: tuple[str, ...]) -> Iterator[Sample]:
    """Nothing for a process without CUDA; of a layer that never ran only that it does not."""
    if (events := process.cuda_events) and events.state is not LayerState.OFF:
        yield "pymon_cuda_layer_running", ("events", *labels), events.state is LayerState.RUNNING
        if events.steps_timed_total:
            yield from _about_events(events, labels)
    if (cupti := process.cupti) and cupti.state is not LayerState.OFF:
        yield "pymon_cuda_layer_running", ("cupti", *labels), cupti.state is LayerState.RUNNING
        if cupti.records_total:
            yield from _about_cupti(cupti, labels)


def _about_events(events: CudaEvents, labels: tuple[str, ...]) -> Iterator[Sample]:
    yield "pymon_cuda_layer_cpu_seconds_total", ("events", *labels), events.own_cpu_s_total
    yield "pymon_cuda_layer_lost_total", ("events", *labels), events.events_lost_total
    yield "pymon_cuda_steps_timed_total", labels, events.steps_timed_total
    yield "pymon_cuda_step_seconds_total", labels, events.step_s_total
    for phase, spent_s in zip(PHASES, events.phase_s_total, strict=True):
        yield "pymon_cuda_phase_seconds_total", (phase, *labels), spent_s


def _about_cupti(cupti: CuptiSums, labels: tuple[str, ...]) -> Iterator[Sample]:
    yield "pymon_cuda_layer_cpu_seconds_total", ("cupti", *labels), cupti.own_cpu_s_total
    yield "pymon_cuda_layer_lost_total", ("cupti", *labels), cupti.records_lost_total
    yield "pymon_cuda_yielded_seconds_total", labels, cupti.yielded_s_total
    yield "pymon_cuda_busy_seconds_total", labels, cupti.busy_s_total
    yield "pymon_cuda_compute_busy_seconds_total", labels, cupti.compute_busy_s_total
    yield "pymon_cuda_nccl_busy_seconds_total", labels, cupti.nccl_busy_s_total
    yield "pymon_cuda_nccl_exposed_seconds_total", labels, cupti.nccl_exposed_s_total
    yield "pymon_cuda_gap_seconds_total", labels, cupti.gap_s_total
    yield "pymon_cuda_gaps_total", labels, cupti.gaps_total
    yield "pymon_cuda_launches_total", labels, cupti.launches_total
    for work in cupti.work:
        yield "pymon_cuda_work_seconds_total", (work.name, *labels), work.spent_s_total
        yield "pymon_cuda_work_total", (work.name, *labels), work.count_total
        if work.bytes_total:
            yield "pymon_cuda_copied_bytes_total", (work.name, *labels), work.bytes_total

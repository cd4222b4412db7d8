"""The samples of what a run does beside its steps: each family of `pymon.model.catalog_run`."""

from __future__ import annotations

from collections.abc import Iterator

from pymon.exporters.sample import Part, Sample
from pymon.model.gpu import GpuSection
from pymon.model.jobs import JobsSection
from pymon.model.loader import Loader, sufficient_workers
from pymon.model.peaks import peak_flops_per_s
from pymon.model.progress import WALL_STATES, GoodputSection, Progress, RunState
from pymon.model.snapshot import Snapshot
from pymon.model.training import PHASES, StepRecord, TrainingProcess

Labels = tuple[str, ...]
_DATA_WAIT = PHASES.index("data_wait")


def about_goodput(snapshot: Snapshot) -> Iterator[Part]:
    """Wall time and restarts of each rank."""
    if section := snapshot.get(GoodputSection):
        yield "goodput", section, _about_ranks(section)


def _about_ranks(section: GoodputSection) -> Iterator[Sample]:
    for rank in section.ranks:
        labels = ("" if rank.rank is None else str(rank.rank), rank.job_id, str(rank.pid))
        for state, spent_s in zip(WALL_STATES, rank.spent_s_total, strict=True):
            yield "pymon_wall_seconds_total", (state, *labels), spent_s
        if rank.restarts_total is not None:
            yield "pymon_restarts_total", labels, rank.restarts_total


def about_run(
    process: TrainingProcess, labels: Labels, flops_per_s_max: float | None
) -> Iterator[Sample]:
    """One process; nothing of a page that does not tell. The peak is that of its GPUs, None where it is not known."""
    progress = process.progress
    if progress is None:
        return
    yield from _about_work(process, progress, labels, flops_per_s_max)
    if process.ended is None:
        for state in RunState:
            yield "pymon_process_state", (state.value, *labels), progress.state is state
    yield "pymon_evaluations_total", labels, progress.evaluations_total
    yield "pymon_evaluation_batches_total", labels, progress.evaluation_batches_total
    yield "pymon_evaluation_seconds_total", labels, process.evaluation_s_total
    yield "pymon_checkpoint_saves_total", ("succeeded", *labels), progress.saves_total
    yield "pymon_checkpoint_saves_total", ("failed", *labels), progress.saves_failed_total
    yield "pymon_checkpoint_seconds_total", labels, process.checkpoint_s_total
    yield "pymon_checkpoint_background_seconds_total", labels, progress.background_save_s_total
    if progress.last_save_real_ns is not None:
        yield "pymon_last_checkpoint_timestamp_seconds", labels, progress.last_save_real_ns / 1e9
    yield "pymon_stall_seconds_total", labels, process.stall_s_total
    if progress.loader.started_total or progress.loader.workers is not None:
        yield from _about_loader(process, progress.loader, labels)


def peak_of(process: TrainingProcess, snapshot: Snapshot) -> float | None:
    """Of the whole GPUs that it holds; None where one is a part of one, or not known."""
    jobs, gpus = snapshot.get(JobsSection), snapshot.get(GpuSection)
    names = {gpu.uuid: gpu.identity.name for gpu in gpus.gpus if gpu.identity} if gpus else {}
    held = [
        (uuid, instance)
        for one in (jobs.processes if jobs else ())
        if one.attach_id == process.attach_id
        for _, uuid, instance in one.gpus
    ]
    peaks = [peak_flops_per_s(names.get(uuid, "")) for uuid, instance in held if instance is None]
    known = [peak for peak in peaks if peak is not None]
    return sum(known) if known and len(known) == len(held) else None


def _about_work(
    process: TrainingProcess, progress: Progress, labels: Labels, flops_per_s_max: float | None
) -> Iterator[Sample]:
    if process.samples_total is not None:
        yield "pymon_samples_total", labels, process.samples_total
    if process.tokens_total is not None:
        yield "pymon_tokens_total", labels, process.tokens_total
    samples_per_s = _rate([(step, step.samples) for step in process.new_steps])
    tokens_per_s = _rate([(step, step.tokens) for step in process.new_steps])
    if samples_per_s is not None:
        yield "pymon_samples_per_second", labels, samples_per_s
    if tokens_per_s is not None:
        yield "pymon_tokens_per_second", labels, tokens_per_s
    if flops_per_s_max is None:
        return
    if tokens_per_s is not None and progress.flops_per_token:
        flops_per_s = tokens_per_s * progress.flops_per_token
    elif samples_per_s is not None and progress.flops_per_sample:
        flops_per_s = samples_per_s * progress.flops_per_sample
    else:
        return
    yield "pymon_model_flops_utilisation_ratio", labels, flops_per_s / flops_per_s_max


def _rate(steps: list[tuple[StepRecord, int | None]]) -> float | None:
    """Of the steps that no capture disturbed; None where one of them does not tell."""
    steady = [(step.duration_s, count) for step, count in steps if not step.profiled]
    spent_s = sum(duration_s for duration_s, _ in steady)
    counts = [count for _, count in steady if count is not None]
    return sum(counts) / spent_s if spent_s > 0 and len(counts) == len(steady) else None


def _about_loader(process: TrainingProcess, loader: Loader, labels: Labels) -> Iterator[Sample]:
    settings = (loader.workers, loader.prefetch_factor, loader.pins_memory)
    words = [_word(one) for one in (*settings, loader.persistent_workers)]
    words += [loader.sharing_strategy, loader.start_method, _word(loader.batch_size)]
    yield "pymon_loader_info", (*labels, *words), 1
    yield "pymon_loader_started_total", labels, loader.started_total
    yield "pymon_loader_first_batches_total", labels, loader.first_batches_total
    yield "pymon_loader_first_batch_seconds_total", labels, loader.first_batch_s_total
    if loader.mean_queue_depth is not None:
        yield "pymon_loader_queue_depth", labels, loader.mean_queue_depth
        empty_ratio = loader.queue_empty_total / loader.queue_looks_total
        yield "pymon_loader_queue_empty_ratio", labels, empty_ratio
    if loader.batch_looks_total:
        yield "pymon_loader_batch_bytes", labels, loader.last_batch_bytes
    batches = sum(loader.wait_histogram.counts)
    if not batches:
        return
    yield "pymon_loader_wait_seconds", labels, loader.wait_histogram
    if loader.workers is None:
        return
    step_s, wait_s = process.step_histogram.sum_s, process.phase_s_total[_DATA_WAIT]
    sufficient = sufficient_workers(
        loader.workers, step_s / batches, wait_s / batches, loader.mean_queue_depth
    )
    if sufficient is not None:
        yield "pymon_loader_workers_sufficient", labels, sufficient


def _word(value: int | bool | None) -> str:
    return "" if value is None else str(value).lower()

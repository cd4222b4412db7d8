"""The run section of the page, with names: what a run did beside its steps, and the loader it reads from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pymon.link import layout

STATES: Final = ("starting", "training", "evaluating", "checkpointing")  # enum RunState
SHARING_STRATEGIES: Final = ("file_descriptor", "file_system")  # from 1 on; 0 is not known
START_METHODS: Final = ("fork", "spawn", "forkserver")  # likewise
_PINS, _PERSISTENT = 1, 2  # enum LoaderFlags


@dataclass(frozen=True, slots=True)
class LoaderSample:
    """The loader of the training thread; None is not known. Durations in nanoseconds, totals since the attach."""

    workers: int | None
    prefetch_factor: int | None
    pins_memory: bool | None
    persistent_workers: bool | None
    sharing_strategy: str  # empty: not known, as below
    start_method: str
    batch_size: int | None
    started_total: int
    first_batches_total: int
    first_batch_ns_total: int
    last_first_batch_ns: int
    queue_looks_total: int
    queue_depth_total: int
    queue_empty_total: int
    batch_looks_total: int
    batch_bytes_total: int
    last_batch_bytes: int
    wait_histogram: tuple[int, ...]
    wait_ns_total: int


@dataclass(frozen=True, slots=True)
class RunSample:
    """One whole state; durations in nanoseconds, totals since the attach, None is not known."""

    state: str  # one of STATES
    state_since_mono_ns: int
    process_start_mono_ns: int | None
    startup_ns: int | None  # None before the end of the first step
    first_step_ns: int
    evaluations_total: int
    evaluation_batches_total: int
    saves_total: int
    saves_failed_total: int
    background_save_ns_total: int
    last_save_real_ns: int | None
    last_save_ns: int
    flops_per_sample: int | None
    flops_per_token: int | None
    restarts: int | None
    loader: LoaderSample


def run_sample(body: bytes) -> RunSample:
    """The section's words by their names."""
    words = layout.RUN_SCALARS.unpack_from(body)
    return RunSample(
        state=STATES[words[0]] if words[0] < len(STATES) else STATES[0],
        state_since_mono_ns=words[1],
        process_start_mono_ns=words[2] or None,
        startup_ns=words[3] or None,
        first_step_ns=words[4],
        evaluations_total=words[5],
        evaluation_batches_total=words[6],
        saves_total=words[7],
        saves_failed_total=words[8],
        background_save_ns_total=words[9],
        last_save_real_ns=words[10] or None,
        last_save_ns=words[11],
        flops_per_sample=words[12] or None,
        flops_per_token=words[13] or None,
        restarts=_less_1(words[14]),
        loader=_loader(words, body),
    )


def _loader(words: tuple[int, ...], body: bytes) -> LoaderSample:
    flags = _less_1(words[19])
    *histogram, wait_ns_total = layout.RUN_WAIT.unpack_from(body, layout.RUN_WAIT_HISTOGRAM_BYTE)
    return LoaderSample(
        workers=_less_1(words[17]),
        prefetch_factor=_less_1(words[18]),
        pins_memory=None if flags is None else bool(flags & _PINS),
        persistent_workers=None if flags is None else bool(flags & _PERSISTENT),
        sharing_strategy=_named(words[20], SHARING_STRATEGIES),
        start_method=_named(words[21], START_METHODS),
        batch_size=words[22] or None,
        started_total=words[16],
        first_batches_total=words[23],
        first_batch_ns_total=words[24],
        last_first_batch_ns=words[25],
        queue_looks_total=words[26],
        queue_depth_total=words[27],
        queue_empty_total=words[28],
        batch_looks_total=words[29],
        batch_bytes_total=words[30],
        last_batch_bytes=words[31],
        wait_histogram=tuple(histogram),
        wait_ns_total=wait_ns_total,
    )


def _less_1(value: int) -> int | None:
    return value - 1 if value else None


def _named(value: int, names: tuple[str, ...]) -> str:
    return names[value - 1] if 0 < value <= len(names) else ""

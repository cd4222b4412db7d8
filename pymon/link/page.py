"""Reads the page of a training process: by `pymon.native._tools`, or by its Python twin (`page_twin`).

Both give the same bytes and refuse the same pages; the bytes get their names here.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from typing import Literal, Protocol

from pymon import native
from pymon.link import (
    collectives_section,
    event_section,
    gpu_sections,
    layout,
    memory_section,
    recorder_section,
    run_section,
)
from pymon.link.page_twin import PageTwin

Backend = Literal["native", "python"]


class PageError(ValueError):
    """The descriptor is no page that this daemon may map; the text says why."""


@dataclass(frozen=True, slots=True)
class PageHeader:
    """Whose page it is. Clocks are nanoseconds."""

    major: int
    minor: int
    pid: int  # in the writer's pid namespace
    start_ticks: int
    created_mono_ns: int
    created_real_ns: int
    attach_id: str  # 32 hex digits


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One whole state of the training section; durations in nanoseconds, totals since the attach."""

    counting: (
        int  # `Counting` of csrc/core/layout.h; a number this pymon does not know reads as 0 (none)
    )
    steps_total: int
    backwards_total: int
    optimizer_calls_total: int
    batches_total: int
    step_ns_total: int
    first_boundary_mono_ns: int  # 0 before the first
    last_boundary_mono_ns: int
    own_ns_total: int
    capturing: bool
    loader_workers: int | None  # None where no loader was seen
    prefetches_total: int
    optimizers_seen: int
    training_tid: int
    dropped_total: int
    samples_total: int | None  # None: not known
    tokens_total: int | None
    stall_ns_total: int  # of step_ns_total: what blocked steps took beyond the usual
    usual_step_ns: int | None  # None before the second step
    evaluation_ns_total: int  # between steps, in none of the phases
    checkpoint_ns_total: int  # likewise
    phase_ns_total: tuple[int, ...]  # the slots that part a step
    user_phase_ns_total: tuple[tuple[str, int], ...]
    step_histogram: tuple[int, ...]
    phase_histograms: tuple[tuple[int, ...], ...]
    doing: int | None = None  # the phase slot that goes on; None: nothing yet, or not told
    doing_since_mono_ns: int = 0
    shed: int = 0  # enum Shed: what the probe leaves away
    sheds_total: int = 0
    overhead_ratio: float | None = (
        None  # own cost per step time, of the probe's last window; None before the first
    )
    budget_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class StepSample:
    """One finished step of the ring."""

    step: int
    end_mono_ns: int
    duration_ns: int
    backwards: int
    optimizer_calls: int
    batches: int
    profiled: bool
    estimated: bool
    own_ns: int
    samples: int | None  # None: not known
    tokens: int | None
    evaluation_ns: int  # before it, and in none of its phases
    checkpoint_ns: int  # likewise
    phase_ns: tuple[int, ...]  # the slots that part a step; empty where they were shed


class _Raw(Protocol):
    """What both backends give: whole states as bytes."""

    def copy(self) -> bytes: ...
    def header(self) -> bytes: ...
    def train(self) -> bytes | None: ...
    def gpu(self) -> bytes | None: ...
    def cupti(self) -> bytes | None: ...
    def run(self) -> bytes | None: ...
    def gpu_steps_after(self, step: int) -> bytes: ...
    def events(self) -> bytes | None: ...
    def events_after(self, number: int) -> bytes: ...
    def collectives(self) -> bytes | None: ...
    def memory(self) -> bytes | None: ...
    def recorder(self) -> bytes | None: ...
    def steps_after(self, step: int) -> tuple[bytes, int]: ...


class PageReader:
    """One trainer's page; made by `open`."""

    def __init__(self, raw: _Raw) -> None:
        self._raw: _Raw | None = raw
        self.header = _header(raw.header())

    @classmethod
    def open(cls, fd: int, backend: Backend | None = None) -> PageReader:
        """Checks and maps; `fd` may be closed afterwards. Raises PageError.

        `backend` None takes the native reader where it is built.
        """
        tools, why_not = (None, "") if backend == "python" else native.tools()
        if tools is None and backend == "native":
            raise PageError(why_not)
        try:
            return cls(PageTwin(fd) if tools is None else tools.PageReader(fd))
        except ValueError as err:
            raise PageError(str(err)) from None
        except OSError as err:
            raise PageError(f"not a page: {err.strerror}") from None

    @classmethod
    def of_bytes(cls, page: bytes, backend: Backend | None = None) -> PageReader:
        """Of a page that was kept as bytes (`copy`). Raises PageError, OSError where there is no memory."""
        fd = os.memfd_create("pymon-kept-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(page)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            return cls.open(fd, backend)
        finally:
            os.close(fd)

    def copy(self) -> bytes:
        """All bytes of it, as they stand: up to `layout.MAX_PAGE_BYTES`."""
        return self._open().copy()

    def train(self) -> TrainSample | None:
        """The newest whole state; None where there was no quiet moment, as after a writer's death in mid-copy."""
        body = self._open().train()
        return None if body is None else _train(body)

    def steps_after(self, step: int) -> tuple[tuple[StepSample, ...], int]:
        """The steps newer than `step` that the ring still holds, oldest first, and how many are gone."""
        raw, lost = self._open().steps_after(max(step, 0))
        size = layout.RING_ENTRY_BYTES
        return tuple(_step(raw[at : at + size]) for at in range(0, len(raw), size)), lost

    def gpu(self) -> gpu_sections.GpuSample | None:
        """What CUDA events measured; None likewise, and where the page's writer knows no GPU section."""
        body = self._open().gpu()
        return None if body is None else gpu_sections.gpu_sample(body)

    def cupti(self) -> gpu_sections.CuptiSample | None:
        """The sums over CUPTI's records; None likewise."""
        body = self._open().cupti()
        return None if body is None else gpu_sections.cupti_sample(body)

    def run(self) -> run_section.RunSample | None:
        """What the run did beside its steps; None likewise."""
        body = self._open().run()
        return None if body is None else run_section.run_sample(body)

    def gpu_steps_after(self, step: int) -> tuple[gpu_sections.GpuStepSample, ...]:
        """GPU times of the steps newer than `step`, oldest first; any may be missing."""
        return gpu_sections.gpu_steps(self._open().gpu_steps_after(max(step, 0)))

    def events(self) -> event_section.EventsSample | None:
        """Events that explain a slow step; None likewise."""
        body = self._open().events()
        return None if body is None else event_section.events_sample(body)

    def collectives(self) -> collectives_section.CollectivesSample | None:
        """Process groups, and what DDP says of its own communication; None likewise."""
        body = self._open().collectives()
        return None if body is None else collectives_section.collectives_sample(body)

    def memory(self) -> memory_section.MemorySample | None:
        """The allocator of each device, and the host memory of the process and its workers; None likewise."""
        body = self._open().memory()
        return None if body is None else memory_section.memory_sample(body)

    def recorder(self) -> recorder_section.RecorderSample | None:
        """What torch's Flight Recorder said of single collectives; None likewise."""
        body = self._open().recorder()
        return None if body is None else recorder_section.recorder_sample(body)

    def events_after(self, number: int) -> tuple[event_section.EventSample, ...]:
        """The single events after the one of this number, oldest first; any may be missing."""
        return event_section.event_samples(self._open().events_after(max(number, 0)))

    def close(self) -> None:
        """Lets go of the mapping; reading afterwards raises PageError."""
        self._raw = None

    def _open(self) -> _Raw:
        if self._raw is None:
            raise PageError("the page is closed")
        return self._raw


def _header(raw: bytes) -> PageHeader:
    fields = layout.HEADER.unpack_from(raw)
    return PageHeader(
        major=fields[1],
        minor=fields[2],
        pid=fields[4],
        start_ticks=fields[5],
        created_mono_ns=fields[6],
        created_real_ns=fields[7],
        attach_id=fields[8].hex(),
    )


def _train(body: bytes) -> TrainSample:
    scalars = layout.TRAIN_SCALARS.unpack_from(body)
    phases = layout.TRAIN_PHASES.unpack_from(body, layout.TRAIN_PHASES_BYTE)
    histogram_bytes = layout.TRAIN_HISTOGRAM.size
    doing = (scalars[20] >> layout.DOING_SHIFT) - 1
    return TrainSample(
        counting=scalars[0] if scalars[0] <= layout.COUNT_LAST else 0,
        steps_total=scalars[1],
        backwards_total=scalars[2],
        optimizer_calls_total=scalars[3],
        batches_total=scalars[4],
        step_ns_total=scalars[5],
        first_boundary_mono_ns=scalars[6],
        last_boundary_mono_ns=scalars[7],
        own_ns_total=scalars[8],
        capturing=bool(scalars[9]),
        loader_workers=scalars[10] - 1 if scalars[10] else None,
        prefetches_total=scalars[11],
        optimizers_seen=scalars[12],
        training_tid=scalars[13],
        dropped_total=scalars[15],
        samples_total=scalars[16] or None,
        tokens_total=scalars[17] or None,
        stall_ns_total=scalars[18],
        usual_step_ns=scalars[19] or None,
        evaluation_ns_total=phases[layout.EVALUATION_SLOT],
        checkpoint_ns_total=phases[layout.CHECKPOINT_SLOT],
        phase_ns_total=phases[: layout.STEP_PHASES],
        user_phase_ns_total=_user_phases(body, min(scalars[14], layout.USER_PHASES), phases),
        step_histogram=layout.TRAIN_HISTOGRAM.unpack_from(body, layout.TRAIN_STEP_HISTOGRAM_BYTE),
        phase_histograms=tuple(
            layout.TRAIN_HISTOGRAM.unpack_from(
                body, layout.TRAIN_PHASE_HISTOGRAMS_BYTE + slot * histogram_bytes
            )
            for slot in range(layout.STEP_PHASES)
        ),
        doing=doing if 0 <= doing < layout.STEP_PHASES else None,
        doing_since_mono_ns=scalars[20] & ((1 << layout.DOING_SHIFT) - 1),
        shed=min(scalars[21], layout.SHED_ALL),
        sheds_total=scalars[22],
        overhead_ratio=(scalars[23] & 0xFFFFFFFF) / 1e6 if scalars[23] else None,
        budget_ratio=(scalars[23] >> 32) / 1e6 if scalars[23] else None,
    )


def _user_phases(body: bytes, used: int, phases: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    size = layout.USER_PHASE_NAME_BYTES
    named = []
    for index in range(used):
        at = layout.TRAIN_NAMES_BYTE + index * size
        text = body[at : at + size].split(b"\0", 1)[0].decode("utf-8", "replace")
        name = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
        named.append((name, phases[layout.USER_PHASE_FIRST + index]))
    return tuple(named)


def _step(raw: bytes) -> StepSample:
    words = layout.RING_ENTRY.unpack(raw)
    counts, flags = words[3], words[4]
    return StepSample(
        step=words[0],
        end_mono_ns=words[1],
        duration_ns=words[2],
        backwards=counts & 0xFFFF,
        optimizer_calls=counts >> 16 & 0xFFFF,
        batches=counts >> 32 & 0xFFFF,
        profiled=bool(flags & layout.STEP_PROFILED),
        estimated=bool(flags & layout.STEP_ESTIMATED),
        own_ns=words[5],
        samples=words[6] or None,
        tokens=words[7] or None,
        evaluation_ns=words[8 + layout.EVALUATION_SLOT],
        checkpoint_ns=words[8 + layout.CHECKPOINT_SLOT],
        phase_ns=() if flags & layout.STEP_UNPHASED else words[8 : 8 + layout.STEP_PHASES],
    )

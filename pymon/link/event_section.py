"""The page's section of events that explain a slow step, with names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pymon.link import layout
from pymon.link.gpu_sections import text_at

# enum EventKind of csrc/core/layout_events.h, in its order; tests/link holds the two against each other.
KINDS: Final = (
    "gc_young",
    "gc_full",
    "compile",
    "recompile",
    "graph_break",
    "checkpoint_save",
    "checkpoint_background",
    "graph_capture",
    "cache_flush",
)


@dataclass(frozen=True, slots=True)
class EventSumsSample:
    """One kind; durations in nanoseconds, totals since the attach."""

    count: int
    ns_total: int
    ns_max: int
    last_begin_mono_ns: int  # 0 where it is not known
    last_ns: int
    last_step: int  # the step that was open, 1 for the first


@dataclass(frozen=True, slots=True)
class EventSample:
    """One event of the ring."""

    number: int  # 1 is the first
    kind: str  # one of KINDS
    begin_mono_ns: int
    duration_ns: int
    step: int
    detail: int  # objects collected; graph breaks at once


@dataclass(frozen=True, slots=True)
class EventsSample:
    """One whole state."""

    watched: frozenset[str]  # what can be seen in this process
    unseen: str  # why the others cannot
    events_total: int  # the number of the newest one
    cudnn_benchmark: bool | None  # None where it is not known
    cudnn_benchmark_changes_total: int
    sums: tuple[tuple[str, EventSumsSample], ...]  # the kinds that occurred


def events_sample(body: bytes) -> EventsSample:
    """`body` is an EventsBody of csrc/core/layout_events.h."""
    watched, events_total, benchmark, changes = layout.EVENTS_SCALARS.unpack_from(body)
    sums = []
    for index, kind in enumerate(KINDS):
        words = layout.EVENT_SUMS.unpack_from(
            body, layout.EVENT_SUMS_BYTE + index * layout.EVENT_SUMS.size
        )
        if words[0]:
            sums.append((kind, EventSumsSample(*words)))
    return EventsSample(
        watched=frozenset(kind for bit, kind in enumerate(KINDS) if watched >> bit & 1),
        unseen=text_at(body, layout.EVENT_UNSEEN_BYTE),
        events_total=events_total,
        cudnn_benchmark=benchmark == 2 if benchmark in (1, 2) else None,
        cudnn_benchmark_changes_total=changes,
        sums=tuple(sums),
    )


def event_samples(raw: bytes) -> tuple[EventSample, ...]:
    """`raw` is any number of EventEntry; kinds of a later pymon are left out."""
    return tuple(
        EventSample(words[0], KINDS[words[1]], *words[2:])
        for words in layout.EVENT_ENTRY.iter_unpack(raw)
        if words[1] < len(KINDS)
    )

"""The page's section of events -> the model. Whatever a trainer claims is bounded to what a metric can hold."""

from __future__ import annotations

from pymon.collectors.gpu_work import MAX_COUNT
from pymon.link.event_section import EventSample, EventsSample
from pymon.model.events import EventSums, TrainingEvent, TrainingEvents


def training_events(
    sample: EventsSample | None, new: tuple[EventSample, ...] = ()
) -> TrainingEvents | None:
    """The section, and the events since the look before."""
    if sample is None:
        return None
    return TrainingEvents(
        watched=sample.watched,
        unseen=sample.unseen,
        sums=tuple(
            EventSums(
                kind=kind,
                count_total=min(sums.count, MAX_COUNT),
                spent_s_total=sums.ns_total / 1e9,
                longest_s=sums.ns_max / 1e9,
                last_begin_mono_ns=sums.last_begin_mono_ns,
                last_s=sums.last_ns / 1e9,
                last_step=min(sums.last_step, MAX_COUNT),
            )
            for kind, sums in sample.sums
        ),
        cudnn_benchmark=sample.cudnn_benchmark,
        cudnn_benchmark_changes_total=min(sample.cudnn_benchmark_changes_total, MAX_COUNT),
        new=tuple(map(training_event, new)),
    )


def training_event(event: EventSample) -> TrainingEvent:
    """In seconds."""
    return TrainingEvent(
        event.kind, event.begin_mono_ns, event.duration_ns / 1e9, event.step, event.detail
    )

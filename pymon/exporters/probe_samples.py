"""What the probe saw beside steps and phases, as samples of the families in pymon/model/catalog_probe.py."""

from __future__ import annotations

from collections.abc import Iterator

from pymon.exporters.sample import Sample
from pymon.model.collectives import Collectives
from pymon.model.events import TrainingEvents
from pymon.model.training import TrainingProcess


def about_probe(process: TrainingProcess, labels: tuple[str, ...]) -> Iterator[Sample]:
    """Nothing of what the process, or its older probe, does not tell."""
    if process.events is not None:
        yield from _about_events(process.events, labels)
    if process.collectives is not None:
        yield from _about_collectives(process.collectives, labels)


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

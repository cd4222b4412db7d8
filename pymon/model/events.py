"""Events of a training process that explain a slow step: collections, compilations, checkpoints, and their like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventSums:
    """One kind of event (`pymon/link/event_section.py` names them); totals are since the attach."""

    kind: str
    count_total: int
    spent_s_total: float
    longest_s: float
    last_begin_mono_ns: int  # 0 where it is not known
    last_s: float
    last_step: int  # the step that was open, 1 for the first


@dataclass(frozen=True, slots=True)
class TrainingEvent:
    """One event. Young garbage collections are too many to be told one by one."""

    kind: str
    begin_mono_ns: int
    duration_s: float
    step: int  # the step that was open
    detail: int  # objects collected; graph breaks at once


@dataclass(frozen=True, slots=True)
class TrainingEvents:
    """What can be seen, and what was."""

    watched: frozenset[str]  # a kind that is not among them is absent, not zero
    unseen: str  # why
    sums: tuple[EventSums, ...]  # the kinds that occurred
    cudnn_benchmark: bool | None  # None without CUDA
    cudnn_benchmark_changes_total: int
    new: tuple[TrainingEvent, ...]  # since the previous tick, oldest first

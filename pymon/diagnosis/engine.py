"""Runs all rules on all traces, joins what several ranks say, and puts the first advice first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pymon.base.errors import InputError
from pymon.base.units import count
from pymon.diagnosis.facts import trace_facts
from pymon.diagnosis.load import find_traces
from pymon.diagnosis.rules import ALL
from pymon.model.diagnosis import Bottleneck, Confidence, Diagnosis, Evidence
from pymon.model.trace import TraceFacts, TraceReport

Progress = Callable[[Path, int], None]  # the file, and how many of its bytes are read
_ORDER = {bottleneck: place for place, bottleneck in enumerate(Bottleneck)}


def diagnose(paths: Sequence[Path], progress: Progress | None = None) -> TraceReport:
    """Read traces or capture folders and judge them.

    A file that cannot be read becomes a problem of the report while others can; raises InputError
    where nothing at all could be learnt, and PymonError where the native module is absent.
    """
    traces: list[TraceFacts] = []
    problems: list[str] = []
    for path in paths:
        try:
            files = find_traces(path)
        except InputError as err:
            problems.append(str(err))
            continue
        for file in files:
            try:
                traces.append(trace_facts(file, _bound(progress, file)))
            except InputError as err:
                problems.append(str(err))
    if not traces:
        raise InputError("; ".join(problems) or "no trace was given")
    return TraceReport(tuple(traces), judge(traces), tuple(problems))


def judge(traces: Sequence[TraceFacts]) -> tuple[Diagnosis, ...]:
    """What the rules say of these traces, one diagnosis a rule, first advice first."""
    joined = []
    for rule in ALL:
        said = [(facts, found) for facts in traces if (found := rule.judge(facts)) is not None]
        if said:
            joined.append(_join(said, len(traces)))
    return tuple(sorted(joined, key=_first_advice))


def _bound(progress: Progress | None, file: Path) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda done_bytes: progress(file, done_bytes)


def _join(said: Sequence[tuple[TraceFacts, Diagnosis]], traces_total: int) -> Diagnosis:
    """The strongest one stands for all; how many say the same is evidence."""
    facts, worst = max(said, key=lambda pair: pair[1].gain_at_most_ratio or 0.0)
    if traces_total == 1:
        return worst
    who = f"rank {facts.rank}" if facts.rank is not None else Path(facts.path).name
    text = f"Traces that show it, of {traces_total} (worst: {who}, whose numbers these are)"
    return replace(worst, evidence=(*worst.evidence, Evidence(text, count(len(said)))))


def _first_advice(diagnosis: Diagnosis) -> tuple[bool, int, int, float]:
    """Sure before unsure; then by gain in classes of a factor of two; within a class data, compute,
    ..., memory.
    """
    gain = diagnosis.gain_at_most_ratio or 0.0
    gain_class = math.floor(math.log2(gain)) if gain > 0 else -1000
    unsure = diagnosis.confidence is Confidence.LOW
    return (unsure, -gain_class, _ORDER[diagnosis.bottleneck], -gain)

"""A black box as a Chrome trace, for ui.perfetto.dev: steps, their phases and events as slices, the end as a mark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pymon.model.blackbox import BlackBox
from pymon.model.training import PHASES, StepRecord

_STEPS, _PHASES, _EVENTS = 1, 2, 3  # thread numbers: rows, which no viewer folds into one
# Of a phase the page has the sum in a step, not where it began: a gradient-accumulating step goes through its phases
# many times.
_NOTE = "phases are sums of their step, drawn one after the other"


def render(box: BlackBox) -> str:
    """One JSON object; times are microseconds since 1970."""
    return json.dumps(
        {
            "traceEvents": list(_events(box)),
            "displayTimeUnit": "ms",
            "metadata": {"source": "pymon blackbox", "note": _NOTE, "ended": box.ended},
        }
    )


def _events(box: BlackBox) -> Iterator[dict[str, Any]]:
    rank = "" if box.rank is None else f" rank {box.rank}"
    yield _name(box, "process_name", 0, f"{box.script}{rank}")
    yield _name(box, "thread_name", _STEPS, "steps")
    yield _name(box, "thread_name", _PHASES, f"phases ({_NOTE})")
    for step, began_ns in zip(box.steps, box.step_began_real_ns, strict=True):
        arguments = {
            "backwards": step.backwards,
            "optimizer_calls": step.optimizer_calls,
            "batches": step.batches,
            "captured": step.profiled,
            "estimated": step.estimated,
        }
        yield _slice(box, _STEPS, f"step {step.step}", began_ns / 1e3, step.duration_s, arguments)
        yield from _phases(box, step, began_ns / 1e3)
    if box.events:
        yield _name(box, "thread_name", _EVENTS, "events")
    for event, began_ns in zip(box.events, box.event_began_real_ns, strict=True):
        facts = {"step": event.step, "detail": event.detail}
        yield _slice(box, _EVENTS, event.kind, began_ns / 1e3, event.duration_s, facts)
    end = {"name": f"ended: {box.ended}", "ph": "i", "s": "p", "pid": box.pid, "tid": _STEPS}
    yield end | {"ts": box.ended_real_ns / 1e3, "args": {"evidence": list(box.evidence)}}


def _phases(box: BlackBox, step: StepRecord, at_us: float) -> Iterator[dict[str, Any]]:
    for phase, spent_s in zip(PHASES, step.phases_s, strict=False):
        if spent_s > 0:
            yield _slice(box, _PHASES, phase, at_us, spent_s, {"step": step.step})
            at_us += spent_s * 1e6


def _slice(
    box: BlackBox, row: int, name: str, at_us: float, took_s: float, arguments: dict[str, Any]
) -> dict[str, Any]:
    where = {"name": name, "ph": "X", "pid": box.pid, "tid": row, "ts": at_us}
    return where | {"dur": took_s * 1e6, "args": arguments}


def _name(box: BlackBox, what: str, row: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": box.pid, "tid": row, "args": {"name": name}}

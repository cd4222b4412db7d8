"""The terminal report: the cause, its evidence and its place, as plain lines in a pipe."""

from __future__ import annotations

import io

from rich.console import Console

from pymon.model.trace import TraceReport
from pymon.reports.terminal import render
from tests.reports.doubles import EVIL, facts, gpu_time, report


def _plain(shown: TraceReport) -> str:
    out = io.StringIO()
    Console(file=out, width=200, highlight=False).print(render(shown))
    return out.getvalue()


def test_cause_evidence_and_place_stand_in_it() -> None:
    text = _plain(report(gpu_time()))
    assert EVIL in text  # brackets are shown, not taken for markup
    assert "at most 30.0 % of the step" in text
    assert ":12 in" in text
    assert "rank 3 of 8" in text
    assert "\x1b" not in text


def test_without_a_gpu_it_says_so() -> None:
    text = _plain(TraceReport((facts(None),), (), ()))
    assert "no GPU events" in text
    assert "No known cause" in text

"""How traces and places are named."""

from __future__ import annotations

import dataclasses

from pymon.model.diagnosis import CodeSite
from pymon.model.trace import TraceReport
from pymon.reports.trace_words import no_cause, place, place_note, trace_line
from tests.reports.doubles import facts


def test_a_place_says_what_its_line_is_worth() -> None:
    exact = CodeSite("train.py", 31, "step", "Tensor.item", 3, 0.1, exact_line=True)
    assert (place(exact), place_note(exact)) == ("train.py:31 in step", "exact line")
    first = dataclasses.replace(exact, exact_line=False)
    assert place_note(first) == "first line of the function"
    annotation = dataclasses.replace(exact, file="", function="forward")
    assert place(annotation) == "inside `forward`"


def test_a_trace_in_one_line() -> None:
    assert "rank 3 of 8" in trace_line(facts(None))
    assert "4 steps of 250 ms" in trace_line(facts(None))


def test_unusable_is_not_called_healthy() -> None:
    broken = dataclasses.replace(facts(None), usable=False)
    assert "Nothing can be judged" in no_cause(TraceReport((broken,), (), ()))

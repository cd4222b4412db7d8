"""The summary under the training's output: all that matters, and plain text in a pipe."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from pymon.reports import run_terminal
from tests.reports.run_summaries import EMPTY, PROCESS, SUMMARY


def printed(summary):
    console = Console(file=io.StringIO(), width=200)
    console.print(run_terminal.render(summary))
    return console.file.getvalue()


def test_says_steps_time_incident_advice_and_report():
    text = printed(SUMMARY)

    for part in (
        "1,234 steps, median 31.2 ms",
        "data wait 40%, backward 30%",
        "step_slow: a step takes 90.0 ms",
        "training waits for its input",
        "change first  Set num_workers=4.",
        "/state/runs/r1/report.html",
    ):
        assert part in text


def test_the_bar_is_as_long_as_the_shares():
    text = printed(SUMMARY)

    assert "D" * 12 + "F" * 6 + "B" * 9 in text


def test_a_run_in_which_nothing_attached_says_so():
    assert "no training process attached" in printed(EMPTY)


def test_the_peak_of_the_allocator_is_said_where_there_is_one():
    one = dataclasses.replace(PROCESS, allocated_peak_bytes=71 << 30)
    assert "at most 71.0 GiB of tensors" in printed(dataclasses.replace(SUMMARY, processes=(one,)))
    assert "of tensors" not in printed(SUMMARY)


def test_what_is_unknown_is_not_said_as_zero():
    one = dataclasses.replace(PROCESS, median_step_s=None, phase_s_total=(0.0,) * 5)

    text = printed(dataclasses.replace(EMPTY, processes=(one,)))

    assert "median" not in text
    assert "0%" not in text


def test_brackets_in_an_advice_are_no_markup():
    text = printed(dataclasses.replace(SUMMARY, advice_first="use x[/bold] and [red]y"))

    assert "use x[/bold] and [red]y" in text


def test_many_ranks_leave_room_for_the_advice():
    many = tuple(dataclasses.replace(PROCESS, rank=rank) for rank in range(64))

    text = printed(dataclasses.replace(SUMMARY, processes=many))

    assert "and 48 more processes" in text
    assert len(text.splitlines()) < 30

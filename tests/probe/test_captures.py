"""Capture orders in a training process: what the training may never notice, each in a process of its own."""

import json
import subprocess
import sys

import pytest

from tests.integration.node import ROOT

pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def play(tmp_path):
    """Plays scenarios of captures_scenarios.py; a crash of the process fails the test."""

    def run(name):
        command = [sys.executable, "-m", "tests.probe.captures_scenarios", str(tmp_path), name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        outcome = json.loads(done.stdout)
        assert not outcome["enabled"], "a profiler was left running"
        assert outcome["tensor_is_clean"], "torch.Tensor was left changed"
        return outcome

    return run


def only(outcome):
    (receipt,) = outcome["receipts"]
    return receipt


def test_the_steps_that_were_ordered_are_in_the_trace_with_their_call_sites(play):
    outcome = play("written")

    assert (only(outcome)["status"], only(outcome)["reason"]) == ("written", "")
    assert outcome["steps"] == ["ProfilerStep#7", "ProfilerStep#8"]
    (site,) = [s for s in outcome["sites"]["sites"] if s["call"] == "Tensor.item"]
    assert site["file"].endswith("captures_scenarios.py")
    assert site["calls"] == outcome["sites"]["steps"] == 2
    assert not outcome["callback"]


def test_an_absolute_first_step_is_kept_to(play):
    assert play("absolute_step")["steps"] == ["ProfilerStep#8", "ProfilerStep#9"]


def test_a_step_that_is_over_is_missed(play):
    assert only(play("past_step"))["status"] == "missed"


def test_one_order_at_a_time_and_the_next_one_after_it(play):
    receipts = play("twice")["receipts"]

    assert [r["status"] for r in receipts] == ["refused", "written", "written"]
    assert receipts[0]["reason"] == "capture c1 is under way here"


def test_a_trace_is_bounded_by_its_events(play):
    assert only(play("events_bound"))["steps"] == 1
    assert "one step makes" in only(play("one_step_too_large"))["reason"]


def test_a_trace_is_bounded_by_its_seconds(play):
    receipt = only(play("seconds_bound"))

    assert receipt["status"] == "written"
    assert 0 < receipt["steps"] < 1000


def test_the_users_profiler_wins_when_it_runs_or_warms_up(play):
    active, warming_up = play("user_active"), play("user_warming_up")

    for outcome in (active, warming_up):
        assert only(outcome)["reason"] == "the job's own profiler is running"
        assert not outcome["folder"]
    assert active["user_events"] > 0


@pytest.mark.parametrize("name", ["user_starts_in_the_middle", "user_starts_in_another_thread"])
def test_the_users_profiler_wins_when_it_starts_in_the_middle(play, name):
    outcome = play(name)

    assert only(outcome)["reason"] == "the job's own profiler started, and came first"
    assert outcome["user_events"] > 0
    assert not outcome["folder"]


def test_a_full_disk_and_a_spool_that_is_gone_end_in_receipts(play):
    assert "of disk are free" in only(play("disk_short"))["reason"]
    assert "could not be written" in only(play("disk_fills_up"))["reason"]
    assert "spool" in only(play("spool_gone"))["reason"]


def test_a_training_that_stops_stepping_ends_in_a_receipt(play):
    for name in (
        "no_boundary",
        "boundary_ceases_in_recording",
        "boundary_ceases_between_two_recordings",
    ):
        outcome = play(name)
        assert "no step boundary came" in only(outcome)["reason"]
        assert not outcome["capturing"]


def test_an_exception_of_torch_ends_in_a_receipt_and_an_interrupt_reaches_the_user(play):
    assert only(play("torch_raises"))["reason"] == "ZeroDivisionError: division by zero"
    assert play("interrupted")["raised"]


def test_what_the_user_had_overridden_stays(play):
    assert play("user_override")["kept"]


def test_a_forked_child_touches_nothing(play):
    outcome = play("fork_child")

    assert outcome["child"] == 0
    assert only(outcome)["status"] == "written"

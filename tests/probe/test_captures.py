"""Capture orders in a training process: what the training may never notice, each in a process of its own."""

import json
import subprocess
import sys

import pytest

from tests.integration.node import ROOT
from tests.waiting import PATIENCE_S

pytest.importorskip("torch", reason="torch is not installed")


# Those in which nothing but our own captures meets torch share a process: importing it takes seconds.
TOGETHER = [
    "written",
    "absolute_step",
    "past_step",
    "twice",
    "events_bound",
    "one_step_too_large",
    "seconds_bound",
    "disk_short",
    "spool_gone",
    "memory_short",
    "memory_short_after_sizing",
    "no_boundary",
    "boundary_ceases_in_recording",
    "boundary_ceases_between_two_recordings",
    "torch_raises",
    "export_raises",
    "stop_raises",
    "restored",
    "user_override",
    "names_missing",
    "evaluation_in_sizing",
    "evaluation_in_a_kept_step",
    "batches_of_the_training",
]


def outcomes(folder, *names):
    """By name; a crash of the process fails the test."""
    command = [sys.executable, "-m", "tests.probe.captures_scenarios", str(folder), *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    return outcomes(tmp_path_factory.mktemp("together"), *TOGETHER)


@pytest.fixture
def play(tmp_path, together):
    """Plays a scenario of captures_scenarios.py."""

    def run(name):
        outcome = together[name] if name in together else outcomes(tmp_path, name)[name]
        assert not outcome["enabled"], "a profiler was left running"
        assert outcome["tensor_is_clean"], "torch.Tensor was left changed"
        assert outcome["loader_is_clean"], "the data loader was left changed"
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


@pytest.mark.parametrize(
    "name",
    [
        "user_starts_in_the_middle",
        "user_starts_in_another_thread",
        "user_waits_in_the_middle",
    ],
)
def test_the_users_profiler_wins_when_it_starts_in_the_middle(play, name):
    outcome = play(name)

    assert only(outcome)["reason"] == "the job's own profiler started, and came first"
    assert outcome["user_events"] > 0
    assert not outcome["folder"]


def test_a_user_who_profiles_again_and_again_gets_every_trace_whole(play):
    outcome = play("user_schedules_again_and_again")

    assert len(outcome["traces"]) == 8
    assert len(set(outcome["traces"])) == 1
    assert outcome["traces"][0] > 0


def test_a_switched_off_range_profiler_of_the_user_ends_nothing(play):
    assert only(play("emit_itt_starts_in_the_middle"))["status"] == "written"


def test_a_torch_that_lacks_the_private_names_is_not_captured(play):
    assert "lacks profile._prepare_trace" in only(play("names_missing"))["reason"]


def test_memory_that_is_short_ends_in_receipts(play):
    assert "1 MiB of memory are available" in only(play("memory_short"))["reason"]
    outcome = play("memory_short_after_sizing")
    assert only(outcome)["status"] == "refused"
    assert not outcome["folder"]


@pytest.mark.parametrize("name", ["evaluation_in_sizing", "evaluation_in_a_kept_step"])
def test_an_evaluation_that_begins_within_a_step_ends_the_recording(play, name):
    outcome = play(name)

    assert outcome["receipts"][0]["status"] == "failed"
    assert "an evaluation began" in outcome["receipts"][0]["reason"]
    assert not outcome["folder"]
    assert [r["status"] for r in outcome["receipts"][1:]] in ([], ["written"])


def test_steps_of_several_batches_are_captured(play):
    outcome = play("batches_of_the_training")

    assert only(outcome)["status"] == "written"
    assert len(outcome["steps"]) == 3


def test_what_was_wrapped_is_the_very_same_again_and_gave_the_same_values(play):
    outcome = play("restored")

    assert outcome["changed"]
    assert outcome["same"]
    assert outcome["values"] == [[True, 1.0, 1, 8, [1.0], 1.0]] * 2


def test_what_is_compiled_while_calls_are_wrapped_works(play):
    outcome = play("compiled_in_the_middle")

    assert only(outcome)["status"] == "written"
    assert outcome["results"] == [[3, 3], [3, 3], [-2, -2, -2]]


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
    for name in ("export_raises", "stop_raises"):
        outcome = play(name)
        assert only(outcome)["reason"] == "RuntimeError: torch could not"
        assert not outcome["folder"]
    assert play("interrupted")["raised"]


def test_what_the_user_had_overridden_stays(play):
    assert play("user_override")["kept"]


def test_a_forked_child_touches_nothing(play):
    outcome = play("fork_child")

    assert outcome["child"] == 0
    assert only(outcome)["status"] == "written"

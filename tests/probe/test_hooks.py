"""What is counted under many kinds of training loop, on real torch; the loops stand in loops.py."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the probe hooks torch")
from pymon import native

pytestmark = pytest.mark.skipif(native.probe()[0] is None, reason=native.probe()[1])

DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(5)
OPTIMIZER_COUNTED, EXPLICIT, ESTIMATED = 1, 2, 3
MS = 1_000_000


@pytest.fixture(scope="module")
def loops():
    done = subprocess.run(
        [sys.executable, "-m", "tests.probe.loops"],
        check=False,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["loop"]: one for one in said}


@pytest.fixture
def page(loops):
    def of(name):
        assert loops[name]["error"] == ""
        return loops[name]["page"]

    return of


@pytest.mark.parametrize(
    ("loop", "counts"),
    [
        ("plain", {"steps_total": 5, "backwards_total": 5, "optimizer_calls_total": 5}),
        ("accumulation", {"steps_total": 2, "backwards_total": 8}),
        ("gan", {"steps_total": 5, "optimizers_seen": 2}),
        ("scaler_skips_two_of_five", {"steps_total": 3, "backwards_total": 5}),
        ("lbfgs", {"steps_total": 5, "optimizer_calls_total": 5}),
        ("super_step", {"steps_total": 5, "optimizer_calls_total": 5}),
        ("step_raises_once", {"steps_total": 4}),
        ("two_threads", {"steps_total": 200, "backwards_total": 200}),
        ("forward_and_backward_inside_step", {"steps_total": 5, "batches_total": 5}),
        ("loader_without_workers", {"steps_total": 6, "batches_total": 6, "loader_workers": 0}),
        ("loader_with_two_workers", {"steps_total": 6, "batches_total": 6, "loader_workers": 2}),
        ("loader_inside_a_dataset", {"steps_total": 3, "batches_total": 3}),
        ("autograd_grad", {"steps_total": 5, "backwards_total": 5}),
        ("explicit_steps", {"steps_total": 5, "counting": EXPLICIT}),
        ("explicit_steps_of_three_calls", {"steps_total": 5, "optimizer_calls_total": 13}),
        ("explicit_steps_alone", {"steps_total": 5, "backwards_total": 0}),
        ("optimizers_in_backward", {"steps_total": 5, "backwards_total": 5}),
        ("reentrant_checkpoint", {"steps_total": 5, "backwards_total": 5}),
    ],
)
def test_counts(page, loop, counts):
    assert {name: page(loop)[name] for name in counts} == counts


def test_the_phases_of_each_step_sum_to_it(loops):
    for name, said in loops.items():
        for step in said["page"].get("steps", []):
            assert sum(step["phase_ns"][:5]) == pytest.approx(step["duration_ns"], abs=1000), name


def test_every_step_is_in_the_ring_once(loops):
    for name, said in loops.items():
        page = said["page"]
        numbers = [step["step"] for step in page["steps"]]
        # A second thread may finish steps while the first one is still opening the page.
        assert numbers == list(range(page["lost"] + 1, page["steps_total"] + 1)), name
        assert name == "two_threads" or page["lost"] == 0


def test_time_goes_to_the_phase_it_was_spent_in(page):
    for step in page("phases_of_known_length")["steps"]:
        phases = step["phase_ns"]
        assert phases[DATA_WAIT] >= 16 * MS  # 8 samples of 2 ms
        assert phases[FORWARD] >= 40 * MS
        assert phases[OTHER] >= 20 * MS
        assert phases[OPTIMIZER] < 20 * MS


def test_a_forward_inside_step_is_not_the_optimizers_time(page):
    for step in page("forward_and_backward_inside_step")["steps"]:
        assert step["phase_ns"][FORWARD] >= 5 * MS
    # The first call of an optimizer may load code.
    for step in page("forward_and_backward_inside_step")["steps"][1:]:
        assert step["phase_ns"][OPTIMIZER] < 5 * MS


def test_another_threads_fetches_are_no_data_wait(page):
    said = page("another_thread_loads")
    assert said["steps_total"] == 6
    assert said["phase_ns_total"][DATA_WAIT] == 0
    assert said["prefetches_total"] >= 4  # those before the first backward belong to nobody yet


def test_without_an_optimizer_steps_are_estimated_and_say_so(page):
    said = page("no_optimizer")
    assert said["counting"] == ESTIMATED
    assert said["backwards_total"] == 100
    assert 0 < said["steps_total"] < 100
    assert all(step["estimated"] for step in said["steps"])


def test_hooked_steps_are_not_marked_estimated(page):
    assert page("plain")["counting"] == OPTIMIZER_COUNTED
    assert not any(step["estimated"] for step in page("plain")["steps"])


def test_named_phases_are_timed_and_the_ninth_is_dropped(page):
    said = page("named_phases")
    named = dict(said["user_phase_ns_total"])
    assert named["augment"] >= 20 * MS
    assert named["decorated"] >= 10 * MS
    assert len(named) == 8
    assert said["dropped_total"] == 4


def test_a_forked_child_gets_its_own_page_and_leaves_its_parents_alone(page):
    assert page("a_forked_child_trains")["steps_total"] == 5


def test_own_cost_is_counted(page):
    said = page("two_threads")
    assert 0 < said["own_ns_total"] < said["step_ns_total"]

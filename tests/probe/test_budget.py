"""What the probe leaves away to hold its budget, and `pymon disarm`: on real training and on a clock of the test's."""

import json

import pytest

from pymon import native
from pymon.probe import budget as module
from pymon.probe.budget import BACK_S, SHED_ALL, WINDOW_S, WINDOWS_OVER, Budget
from tests.probe.training import environment, python

TRAINING = """
import json, sys, torch
from torch.utils.data import DataLoader, TensorDataset
from pymon.probe import attach
from tests.probe.loops import child
loader = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=8)
model = torch.nn.Linear(4, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(steps):
    for _ in range(steps):
        for (inputs,) in loader:
            model(inputs).sum().backward(); optimizer.step()
def shed(level):
    attach.native().set_shed(level, level, 0)
"""


@pytest.fixture
def trained(tmp_path):
    """The page of a training after `code`, as builtins."""
    pytest.importorskip("torch", reason="the probe hooks torch")
    if native.probe()[0] is None:
        pytest.skip(native.probe()[1])

    def run(code):
        env = environment(tmp_path / "agent.sock")
        code = f"{TRAINING}\n{code}\nprint(json.dumps(child.page(), default=sorted))"
        status, out, err = python(code, env)
        assert (status, err) == (0, "")
        return json.loads(out)

    return run


def phases(page):
    return [bool(step["phase_ns"]) for step in page["ring"]]


def test_without_phases_steps_and_their_times_are_as_before(trained):
    page = trained("train(5); shed(2); train(5); shed(1); train(5)")

    assert page["steps_total"] == page["backwards_total"] == page["batches_total"] == 15
    # The step that was under way has some of its phases only: it tells none.
    assert phases(page) == [True] * 5 + [False] * 6 + [True] * 4
    assert sum(step["duration_ns"] for step in page["ring"]) == page["step_ns_total"]
    told_ns = sum(sum(step["phase_ns"]) for step in page["ring"])
    assert sum(page["phase_ns_total"]) == told_ns < page["step_ns_total"]
    assert sum(page["step_histogram"]) == 15
    assert [sum(slot) for slot in page["phase_histograms"]] == [9] * 5


def test_the_heartbeat_is_the_number_of_steps_and_their_time(trained):
    page = trained("train(5); shed(3); train(20); shed(0); train(2)")

    assert page["steps_total"] == 27
    assert [step["step"] for step in page["ring"]] == [1, 2, 3, 4, 5, 26, 27]
    assert page["lost"] == 20
    assert page["step_ns_total"] > sum(step["duration_ns"] for step in page["ring"])
    assert (page["shed"], page["sheds_total"]) == (0, 0)


def test_while_disarmed_nothing_is_counted_and_then_the_count_goes_on(trained):
    page = trained("train(5); shed(4); train(50); shed(0); train(5)")

    assert page["steps_total"] == page["batches_total"] == page["backwards_total"] == 10
    assert [step["step"] for step in page["ring"]] == list(range(1, 11))
    # The first step after it begins with it: the fifty steps are in no step's time.
    assert page["step_ns_total"] < page["last_boundary_mono_ns"] - page["first_boundary_mono_ns"]


def test_switching_within_a_backward_pass_breaks_nothing(trained):
    page = trained(
        "value = model(torch.randn(2, 4)); value.register_hook(lambda _: shed(4))\n"
        "train(3); value.sum().backward(); optimizer.step(); train(3)\n"
        "value = model(torch.randn(2, 4)); value.register_hook(lambda _: shed(0))\n"
        "value.sum().backward(); optimizer.step(); train(3)"
    )
    assert 6 <= page["steps_total"] <= 7  # the step in which it comes back may count
    assert page["shed"] == 0


class NativeDouble:
    """A training of steps of 0.1 s that costs `ratio` of its time; `left` are the levels it was told."""

    def __init__(self):
        self.now_s = self.ratio = 0.0
        self.step_s, self.levels, self.page = 0.1, [], None

    def costs(self):
        steps = int(self.now_s / self.step_s)
        step_ns = round(steps * self.step_s * 1e9)
        return self.own_ns, step_ns, steps

    own_ns = 0

    def set_shed(self, level, sheds_total, overhead_ppm):
        self.levels.append(level)
        self.page = (
            level,
            sheds_total,
            (overhead_ppm & 0xFFFFFFFF) / 1e6,
            (overhead_ppm >> 32) / 1e6,
        )


class GpuDouble:
    def __init__(self):
        self.calls = []

    def shed(self, on, why=""):
        self.calls.append((on, why))


@pytest.fixture
def run(monkeypatch):
    """A budget on a clock that `run(windows, ratio)` lets go on."""
    trainer, gpu = NativeDouble(), GpuDouble()
    monkeypatch.setattr(module.time, "monotonic", lambda: trainer.now_s)
    monkeypatch.setattr(module, "_threads_cpu_ns", lambda: 0)
    capturing = []
    budget = Budget(trainer, gpu, lambda: bool(capturing), env={})

    def go(windows, ratio):
        for _ in range(round(windows * WINDOW_S * 2)):
            trainer.now_s += 0.5
            trainer.own_ns += round(ratio * 0.5 * 1e9)
            budget.tick()
        return trainer.page

    go.trainer, go.gpu, go.budget, go.capturing = trainer, gpu, budget, capturing
    return go


def test_within_the_budget_nothing_goes_and_the_cost_is_told(run):
    level, sheds, ratio, budget = run(10, 0.005)
    assert (level, sheds, budget) == (0, 0, 0.01)
    assert ratio == pytest.approx(0.005, rel=0.05)


def test_beyond_it_layers_go_one_by_one_and_the_heartbeat_stays(run):
    run(WINDOWS_OVER - 0.5, 0.02)
    assert run.trainer.page[0] == 0
    run(1, 0.02)
    assert run.trainer.page[:2] == (1, 1)
    assert run.gpu.calls == [(True, "over pymon's budget")]
    run(20, 0.02)
    assert run.trainer.page[:2] == (3, 3)
    assert [level for level in dict.fromkeys(run.trainer.levels)] == [0, 1, 2, 3]
    assert run.gpu.calls[-1] == (True, "over pymon's budget")


def test_two_windows_are_no_rule(run):
    for _ in range(5):
        run(WINDOWS_OVER - 1, 0.05)
        run(1, 0.001)
    assert run.trainer.page[:2] == (0, 0)


def test_a_layer_comes_back_after_a_while_and_the_second_time_later(run):
    run(WINDOWS_OVER + 1, 0.02)
    assert run.trainer.page[0] == 1
    run(BACK_S / WINDOW_S - 2, 0.004)
    assert run.trainer.page[0] == 1
    run(3, 0.004)
    assert run.trainer.page[0] == 0
    run(WINDOWS_OVER + 1, 0.02)
    assert run.trainer.page[:2] == (1, 2)
    run(BACK_S / WINDOW_S + 2, 0.004)
    assert run.trainer.page[0] == 1
    run(BACK_S / WINDOW_S, 0.004)
    assert run.trainer.page[0] == 0


def test_just_below_the_budget_nothing_comes_back(run):
    run(WINDOWS_OVER + 1, 0.02)
    run(10 * BACK_S / WINDOW_S, 0.008)
    assert run.trainer.page[0] == 1


def test_a_step_longer_than_a_window_is_judged_when_it_ends(run):
    run.trainer.step_s = 40.0
    run(30, 0.005)
    assert run.trainer.page[:2] == (0, 0)
    assert run.trainer.page[2] == pytest.approx(0.005, rel=0.3)


def test_the_daemons_word_counts_and_the_environments_more(run):
    run.budget.tell(True, 0.05)
    run(WINDOWS_OVER + 1, 0.02)
    assert run.trainer.page[0] == 0
    chosen = Budget(NativeDouble(), GpuDouble(), bool, env={"PYMON_BUDGET_RATIO": "0.002"})
    chosen.tell(True, 0.05)
    assert chosen.ratio == 0.002


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf"])
def test_a_budget_that_is_none_is_the_default(text):
    assert Budget(NativeDouble(), GpuDouble(), bool, {"PYMON_BUDGET_RATIO": text}).ratio == 0.01


def test_disarmed_all_goes_and_armed_all_comes_back(run):
    run(5, 0.02)
    run.budget.tell(False, 0.0)
    assert run.trainer.page[0] == SHED_ALL
    run(30, 0.0)
    assert run.trainer.page[0] == SHED_ALL
    run.budget.tell(True, 0.0)
    assert run.trainer.page[0] == 0
    assert run.gpu.calls[-1] == (False, "")


def test_a_capture_under_way_ends_first(run):
    run.capturing.append(1)
    run.budget.tell(False, 0.0)
    assert run.trainer.page is None
    run.capturing.clear()
    run.budget.tick()
    assert run.trainer.page[0] == SHED_ALL

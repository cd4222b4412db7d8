import random
from dataclasses import replace

import pytest

from pymon.detectors.step_slow import StepSlow
from tests.detectors.histories import PROCESS, Node, snapshot


def findings(node, detector=None):
    return list((detector or StepSlow()).detect(node.snapshots))


@pytest.mark.parametrize("step_s", [0.001, 0.02, 0.4, 2.0, 10.0])
def test_a_loop_that_takes_twice_as_long_is_found_within_four_steps_or_seconds(step_s):
    node = Node().run(int(max(30, 60 * step_s)), step_s)
    assert findings(node) == []

    node.run(int(max(4, 8 * step_s)), 2 * step_s)

    (found,) = findings(node)
    assert found.observed.value == pytest.approx(2 * step_s)
    assert "2.0 times" in found.summary


def test_it_names_the_phase_that_took_the_extra_time():
    node = Node().run(30, 0.02, wait_s=0.001).run(4, 0.08, wait_s=0.061)

    (found,) = findings(node)

    assert found.evidence[0].startswith("data_wait: 61 ms a step, usually 1 ms")
    assert len(found.evidence) == 1


def test_it_holds_while_the_loop_stays_slow_in_spite_of_a_fast_tick_now_and_then():
    node, silent, longest = Node().run(60, 0.02).run(5, 0.1), 0, 0
    for second in range(300):
        node.tick(10, 0.02 if second % 50 == 49 else 0.1)
        silent = 0 if findings(node) else silent + 1
        longest = max(longest, silent)

    assert longest <= 3  # an incident ends after ten seconds of silence


def test_it_ends_when_the_loop_recovers():
    node = Node().run(30, 0.02).run(10, 0.1).run(1, 0.02)

    assert findings(node) == []


@pytest.mark.parametrize("slow_ticks", [1, 2])
def test_a_pause_is_no_slower_loop(slow_ticks):
    node = Node().run(60, 0.05)
    for _ in range(slow_ticks):
        node.tick(1, 5.0)

    assert findings(node) == []


def test_checkpoints_every_minute_stay_quiet():
    node = Node()
    for _ in range(10):
        node.run(57, 0.05).tick(0, 0.05).tick(0, 0.05).tick(1, 3.0)
        assert findings(node) == []


def test_noise_of_a_shared_machine_gives_no_alarm_in_hours():
    dice = random.Random(1)
    node, detector = Node(), StepSlow()
    for _ in range(3 * 3600):
        node.tick(10, 0.1 * dice.lognormvariate(0, 0.15))
        node.snapshots = node.snapshots[-200:]  # a shorter memory than the real one is stricter
        assert not list(detector.detect(node.snapshots))


def test_loops_that_have_always_varied_stay_quiet():
    dice = random.Random(2)
    node = Node()
    for _ in range(600):
        node.tick(3, dice.choice([0.2, 0.3, 0.5]))
    node.tick(3, 0.5).tick(3, 0.5).tick(3, 0.5)

    assert findings(node) == []


def test_a_young_process_is_not_judged():
    assert findings(Node().run(2, 0.1).run(4, 0.5)) == []


def test_warm_up_is_neither_alarm_nor_reference():
    node = Node().tick(1, 30.0).tick(5, 0.2).tick(4, 0.2).run(20, 0.02)

    assert findings(node) == []


def test_a_capture_in_progress_and_ended_processes_stay_quiet():
    node = Node().run(30, 0.02).run(5, 0.2)
    for change in ({"capturing": True}, {"ended": "unknown"}):
        newest = snapshot(99, replace(node.process, **change))
        assert list(StepSlow().detect([*node.snapshots[:-1], newest])) == []


def test_absent_data_gives_no_finding():
    assert list(StepSlow().detect([snapshot(0)])) == []
    assert list(StepSlow().detect([snapshot(0, PROCESS)])) == []

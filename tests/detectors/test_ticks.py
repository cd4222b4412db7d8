from dataclasses import replace

from pymon.detectors.ticks import living, median_and_mad, ticks_of
from tests.detectors.histories import PROCESS, Node, snapshot


def test_ticks_without_steps_and_before_the_warm_up_are_left_out():
    node = Node().tick(5, 0.1).tick(0, 0.1).tick(5, 0.2).tick(5, 0.3)

    ticks = ticks_of(node.snapshots, PROCESS.attach_id, warm_up_steps=5)

    assert [tick.median_s for tick in ticks] == [0.2, 0.3]


def test_only_processes_that_run_are_living():
    ended = replace(PROCESS, attach_id="b" * 32, ended="unknown")
    assert living([snapshot(0, PROCESS, ended)]) == (PROCESS,)


def test_median_and_its_deviation():
    assert median_and_mad([1.0, 2.0, 9.0]) == (2.0, 1.0)

import pytest

from pymon.detectors.data_starved import DataStarved
from tests.detectors.histories import PROCESS, Node, snapshot


def findings(node):
    return list(DataStarved().detect(node.snapshots))


@pytest.mark.parametrize("step_s", [0.002, 0.1, 5.0])
def test_a_loop_that_waits_half_its_time_from_the_start_is_found(step_s):
    node = Node().run(int(max(20, 25 * step_s)), step_s, wait_s=step_s / 2)

    (found,) = findings(node)

    assert found.observed.value == pytest.approx(0.5)
    assert "50.0 %" in found.summary


def test_a_loader_that_keeps_up_is_no_finding():
    assert findings(Node().run(60, 0.1, wait_s=0.004)) == []


def test_one_slow_batch_is_no_finding():
    node = Node().run(30, 0.1, wait_s=0.001).tick(2, 0.5, wait_s=0.4)

    assert findings(node) == []


def test_the_first_batches_are_not_judged():
    assert findings(Node().tick(1, 9.0, 8.9).tick(3, 0.1, 0.05).tick(4, 0.1, 0.05)) == []


@pytest.mark.parametrize(
    ("workers", "text"), [(0, "in the training process itself"), (4, "has 4 workers")]
)
def test_it_tells_what_it_knows_of_the_loader(workers, text):
    (found,) = findings(Node(loader_workers=workers).run(20, 0.1, wait_s=0.05))

    assert text in found.evidence[0]


def test_an_unseen_loader_is_unknown_and_not_starved():
    (found,) = findings(Node().run(20, 0.1, wait_s=0.05))
    assert found.evidence == ()
    assert list(DataStarved().detect([snapshot(0, PROCESS)])) == []

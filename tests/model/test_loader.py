"""How many workers would suffice."""

import pytest

from pymon.model.loader import sufficient_workers


@pytest.mark.parametrize(
    ("workers", "batch_s", "wait_s", "enough"),
    [
        (0, 0.100, 0.080, 4),  # 80 ms to make, 20 ms to use
        (0, 0.100, 0.010, 1),
        (2, 0.100, 0.075, 8),  # two make one each 100 ms, it is used up in 25 ms
        (4, 0.100, 0.020, 5),
        (4, 0.100, 0.0005, 4),  # no wait to speak of: those that are there
        (0, 0.100, 0.0, 0),
    ],
)
def test_each_makes_batches_as_fast_as_it_did(workers, batch_s, wait_s, enough):
    assert sufficient_workers(workers, batch_s, wait_s, 0.0) == enough


def test_where_batches_are_ready_more_workers_do_not_help():
    assert sufficient_workers(4, 0.1, 0.05, 2.0) is None
    assert sufficient_workers(4, 0.1, 0.05, 0.2) == 8


@pytest.mark.parametrize(("batch_s", "wait_s"), [(0.0, 0.0), (0.1, 0.1), (0.1, 0.2)])
def test_a_training_that_does_nothing_but_wait_is_not_guessed_at(batch_s, wait_s):
    assert sufficient_workers(2, batch_s, wait_s, None) is None

from pymon.daemon.nvml.backoff import EVENTS, Backoff, Skips


def test_each_failure_doubles_the_wait_up_to_the_most():
    backoff = Backoff(1.0, 5.0)
    waits = []
    for _ in range(5):
        backoff.failed(100.0)
        waits.append(backoff.at_s - 100.0)

    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_one_at_a_time_is_tried_again_when_its_time_has_come():
    skips = Skips()
    for index in (3, 5, EVENTS):
        skips.add(index, 0.0)

    assert skips.now(59.0, set(), spare=True) == {3, 5, EVENTS}
    assert skips.now(61.0, set(), spare=True) == {5, EVENTS}
    assert skips.now(61.0, {3}, spare=True) == {3, EVENTS}
    assert skips.now(61.0, set(), spare=False) == {3, 5, EVENTS}
    skips.discard(3)
    assert 3 not in skips
    assert skips.now(61.0, set(), spare=True) == {EVENTS}

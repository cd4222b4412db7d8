import asyncio
import selectors

import pytest

from pymon.daemon.schedule import Schedule

TICK_S = 0.1


class LoopDouble(asyncio.SelectorEventLoop):
    """A loop whose clock goes on only while it waits, by just that time: no machine is too slow for it."""

    def __init__(self):
        super().__init__(self.Selector())

    class Selector(selectors.DefaultSelector):
        now_s = 0.0

        def select(self, timeout=None):
            self.now_s += timeout or 0.0
            return super().select(0)

    def time(self):
        return self._selector.now_s


def run_for(schedule, time_s):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(schedule.run(), time_s)

    loop = LoopDouble()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def times_of(work_s, time_s):
    """When work began that takes so long, the first call first; and how many ticks were skipped."""
    times_s, durations_s = [], iter(work_s)

    async def work():
        times_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(next(durations_s, 0.0))

    schedule = Schedule(work, tick_s=TICK_S)
    run_for(schedule, time_s)
    return [at_s / TICK_S for at_s in times_s], schedule.skipped_total


def test_it_ticks_at_a_fixed_pace_however_long_the_work_takes():
    times, skipped = times_of([0.0, 0.5 * TICK_S, 0.9 * TICK_S, 0.1 * TICK_S], 5.5 * TICK_S)

    assert times == pytest.approx([0, 1, 2, 3, 4, 5])
    assert skipped == 0


def test_a_tick_that_is_missed_is_counted_and_not_made_up_for():
    times, skipped = times_of([3.5 * TICK_S], 6.5 * TICK_S)

    assert times == pytest.approx([0, 4, 5, 6])
    assert skipped == 3


def test_work_that_fails_is_not_hidden():
    async def work():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(Schedule(work).run())

import asyncio

import pytest

from pymon.daemon.schedule import Schedule


def run_for(schedule, time_s):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(schedule.run(), time_s)

    asyncio.run(main())


def test_it_ticks_at_a_fixed_pace_however_long_the_work_takes():
    times_s = []

    async def work():
        times_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.02)

    schedule = Schedule(work, tick_s=0.05)
    run_for(schedule, 0.4)

    assert 6 <= len(times_s) + schedule.skipped_total <= 9
    for at_s in times_s[1:]:
        assert (at_s - times_s[0] + 0.001) % 0.05 < 0.03  # on the grid, give or take a busy machine


def test_a_tick_that_is_missed_is_counted_and_not_made_up_for():
    calls = []

    async def work():
        calls.append(1)
        if len(calls) == 1:
            await asyncio.sleep(0.17)

    schedule = Schedule(work, tick_s=0.05)
    run_for(schedule, 0.3)

    assert schedule.skipped_total >= 3
    assert 2 <= len(calls) <= 4


def test_work_that_fails_is_not_hidden():
    async def work():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(Schedule(work).run())

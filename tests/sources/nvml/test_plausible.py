import math

import pytest

from pymon.model.gpu import GpuActivity, GpuMemory
from pymon.sources.nvml.plausible import Plausible


@pytest.fixture
def check():
    return Plausible()


@pytest.mark.parametrize(("percent", "ratio"), [(0, 0.0), (41, 0.41), (100, 1.0)])
def test_percents_become_ratios(check, percent, ratio):
    assert check.ratio(percent) == ratio
    assert check.take_invalid() == ()


@pytest.mark.parametrize("percent", [100.5, 101, 2**32 - 1, -1, math.nan, math.inf])
def test_a_ratio_that_cannot_be_is_dropped_and_never_clamped(check, percent):
    assert check.ratio(percent) is None
    assert check.take_invalid() == ("out_of_range",)
    assert check.take_invalid() == ()


def test_what_is_absent_is_not_invalid(check):
    assert check.ratio(None) is check.counter("c", None, 0) is check.memory(None) is None
    assert check.take_invalid() == ()


@pytest.mark.parametrize("celsius", [0, -3, 255, 65535])
def test_a_sensor_that_is_not_there_has_no_temperature(check, celsius):
    assert check.celsius(celsius) is None


def test_parts_that_are_more_than_the_whole_are_dropped(check):
    assert check.memory(GpuMemory(100, 60, 40)) == GpuMemory(100, 60, 40)
    assert check.memory(GpuMemory(100, 61, 40)) is None
    assert check.take_invalid() == ("out_of_range",)


def test_a_counter_that_falls_once_is_an_error_and_one_that_stays_there_a_reset(check):
    values = [100, 5, 110, 120, 3, 4, 10]
    read = [check.counter("c", value, second) for second, value in enumerate(values)]

    assert read == [100, None, 110, 120, None, 4, 10]
    assert check.take_invalid() == ("backwards", "backwards")


def test_a_counter_that_leaps_is_dropped_until_time_has_made_it_possible(check):
    read = [
        check.counter("c", value, second, 10) for second, value in enumerate([0, 9, 2**63, 25, 40])
    ]

    assert read == [0, 9, None, 25, 40]
    assert check.take_invalid() == ("out_of_range",)


def test_counters_are_told_apart(check):
    assert check.counter("a", 100, 0) == 100
    assert check.counter("b", 5, 1) == 5


def test_an_energy_counter_that_stands_still_while_power_is_drawn_is_frozen(check):
    read = [check.energy(1000.0, 300.0, second) for second in range(8)]

    assert read == [1000.0] * 5 + [None] * 3
    assert set(check.take_invalid()) == {"frozen"}
    assert check.energy(1300.0, 300.0, 9) == 1300.0


def test_an_energy_counter_may_stand_still_without_power(check):
    assert [check.energy(1000.0, power, 0) for power in (0.0, None)] == [1000.0, 1000.0]
    assert check.energy(1000.0, 0.0, 100) == check.energy(1000.0, None, 200) == 1000.0


def activity(sm):
    return GpuActivity(1.0, sm_active_ratio=sm)


def test_gpm_that_says_idle_while_kernels_run_is_dropped_and_never_read_as_idle(check):
    assert [check.agreed(0.97, activity(0.0))[1] for _ in range(3)] == [activity(0.0), None, None]
    assert check.take_invalid() == ("contradiction",) * 2
    assert check.agreed(0.97, activity(0.9)) == (0.97, activity(0.9))


def test_what_has_stopped_is_not_believed_when_the_gpu_idles_later(check):
    for _ in range(2):
        check.agreed(0.97, activity(0.0))

    assert check.agreed(0.2, activity(0.0)) == (0.2, None)
    assert check.agreed(0.0, activity(0.0)) == (0.0, None)
    assert check.agreed(0.2, activity(0.1)) == (0.2, activity(0.1))
    assert check.agreed(0.0, activity(0.0)) == (0.0, activity(0.0))


def test_utilisation_that_says_idle_while_multiprocessors_are_busy_is_dropped(check):
    assert [check.agreed(0.0, activity(0.8))[0] for _ in range(2)] == [0.0, None]


def test_one_window_that_is_told_at_several_ticks_contradicts_once(check):
    """A job ended, and the window in which it still ran is not over."""
    window = activity(0.9)
    for _ in range(5):
        assert check.agreed(0.0, window) == (0.0, window)
    assert check.agreed(0.0, activity(0.0)) == (0.0, activity(0.0))


@pytest.mark.parametrize(("utilization", "sm"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.3), (1.0, 0.001)])
def test_edges_of_windows_and_idle_gpus_are_no_contradiction(check, utilization, sm):
    for _ in range(5):
        assert check.agreed(utilization, activity(sm)) == (utilization, activity(sm))
    assert check.take_invalid() == ()

"""A page's memory in the model: what is not told is absent, what cannot be is a lie, and how much grows per step."""

import dataclasses

import pytest

from pymon.collectors.gpu_work import MAX_COUNT
from pymon.collectors.memory import memory, memory_lie
from pymon.collectors.trend import Trends
from pymon.link.memory_section import ALLOCATOR_VALUES, HOST_VALUES, AllocatorSample, MemorySample
from pymon.model.memory import AllocatorUse, HostUse

S = 10**9
GIB = 1 << 30


def allocator(device=0, step=1, read_ns=0, **values):
    return AllocatorSample(device, "GPU-1", step, read_ns, values)


def sample(*allocators, **host):
    return MemorySample(allocators, {name: (value, 1) for name, value in host.items()})


def test_every_value_of_the_page_has_a_field():
    assert set(ALLOCATOR_VALUES) <= {field.name for field in dataclasses.fields(AllocatorUse)}
    assert set(HOST_VALUES) <= {field.name for field in dataclasses.fields(HostUse)}


def test_an_older_page_tells_nothing():
    assert memory(None, 0) is None
    assert memory_lie(None) == ""


def test_what_is_not_told_is_absent():
    found = memory(sample(allocator(allocated_bytes=3), rss_bytes=7), 0)
    assert found.host == HostUse(rss_bytes=7)
    assert found.allocators == (AllocatorUse(0, "GPU-1", 1, 0.0, allocated_bytes=3),)


def test_a_process_on_the_cpu_has_no_allocator():
    assert memory(sample(rss_bytes=7), 0).allocators == ()


def test_each_device_is_told_once():
    found = memory(sample(allocator(0, ooms_total=1), allocator(1), allocator(0, ooms_total=2)), 0)
    assert [(one.device, one.ooms_total) for one in found.allocators] == [(0, 2), (1, None)]


def test_the_age_is_since_the_read():
    found = memory(sample(allocator(read_ns=3 * S)), 5 * S)
    assert found.allocators[0].age_s == 2.0


@pytest.mark.parametrize(
    ("lying", "said"),
    [
        (sample(allocator(128)), "CUDA device 128"),
        (sample(allocator(0, reserved_bytes=MAX_COUNT + 1)), "reserved_bytes of CUDA device 0"),
        (sample(uss_bytes=2**64 - 1), "uss_bytes is 18,446,744,073,709,551,615"),
    ],
)
def test_what_cannot_be_is_a_lie_and_bounded(lying, said):
    assert said in memory_lie(lying)
    found = memory(lying, 0)
    for one in (*found.allocators, found.host):
        values = dataclasses.asdict(one).values()
        assert all(value <= MAX_COUNT for value in values if isinstance(value, int))


def test_an_honest_page_is_none():
    full = {name: MAX_COUNT for name in ALLOCATOR_VALUES}
    assert memory_lie(sample(allocator(127, **full), rss_bytes=MAX_COUNT)) == ""


def grown(trends, seconds, per_step, steps_per_s=10, noise=lambda second: 0):
    """What is told after so many seconds in which each step left `per_step` bytes."""
    for second in range(seconds + 1):
        step = second * steps_per_s
        held = 40 * GIB + step * per_step + noise(second)
        told = sample(allocator(step=step, allocated_bytes=held, reserved_bytes=60 * GIB))
        found = memory(told, second * S, trends, step)
    return found.allocators[0]


def test_a_leak_shows_as_bytes_per_step_and_only_of_what_leaks():
    found = grown(Trends(), 120, per_step=4096)
    assert found.allocated_slope_bytes == 4096
    assert found.reserved_slope_bytes == 0


def test_without_enough_samples_the_slope_is_absent():
    trends = Trends()
    assert grown(trends, 89, 4096).allocated_slope_bytes is None
    assert grown(trends, 100, 4096).allocated_slope_bytes is not None


def test_an_evaluation_now_and_then_does_not_move_it():
    def noise(second):
        return 5 * GIB if second % 50 == 0 else 0  # in a fifth of the samples

    found = grown(Trends(), 600, 4096, noise=noise)
    assert found.allocated_slope_bytes == pytest.approx(4096, rel=0.01)


def test_what_began_to_leak_is_told_by_the_last_ten_minutes():
    trends = Trends()
    grown(trends, 1000, 0)
    for second in range(1001, 2001):
        step = second * 10
        told = sample(allocator(step=step, allocated_bytes=40 * GIB + step * 512))
        found = memory(told, second * S, trends, step)
    assert found.allocators[0].allocated_slope_bytes == 512


def test_a_run_that_stands_still_adds_no_samples():
    trends = Trends()
    for second in range(600):
        found = memory(sample(allocator(step=5, allocated_bytes=second)), second * S, trends, 5)
    assert found.allocators[0].allocated_slope_bytes is None


def test_resident_memory_has_a_slope_too():
    trends = Trends()
    for second in range(101):
        found = memory(sample(rss_bytes=GIB + second * 1000), second * S, trends, second)
    assert found.host.rss_slope_bytes == 1000

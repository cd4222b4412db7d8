"""What the allocator's watcher reads, what it leaves alone, and what it does where reading fails."""

import pytest

from pymon.probe.allocator import Allocator
from tests.allocator_double import AllocatorDouble

GIB = 1 << 30


class NativeDouble:
    def __init__(self):
        self.noted = {}

    def note_allocator(self, device, uuid, values):
        self.noted[device] = (uuid, values)


class Watched:
    """The watcher on a double of torch, and what came of it."""

    def __init__(self, double, torch=None):
        self.warnings = []
        self.native = NativeDouble()
        self.double = double
        self.watcher = Allocator(self.native, self.warnings.append)
        self.watcher.install(torch or double.torch())

    def look(self, times=1):
        for _ in range(times):
            self.watcher.look()
        return self.native.noted


def test_every_value_has_its_place():
    double = AllocatorDouble(
        allocated_bytes=40 * GIB,
        reserved_bytes=60 * GIB,
        active_bytes=41 * GIB,
        inactive_split_bytes=9 * GIB,
        requested_bytes=39 * GIB,
        segment=120,
        num_alloc_retries=27,
        num_ooms=1,
        num_device_alloc=300,
        num_device_free=180,
    )
    double.peaks[0] = {"allocated_bytes": 55 * GIB}
    noted = Watched(double).look()
    assert noted == {
        0: (
            f"GPU-{double.uuid}",
            {
                "allocated_bytes": 40 * GIB,
                "reserved_bytes": 60 * GIB,
                "active_bytes": 41 * GIB,
                "inactive_split_bytes": 9 * GIB,
                "requested_bytes": 39 * GIB,
                "allocated_peak_bytes": 55 * GIB,
                "reserved_peak_bytes": 60 * GIB,
                "segments": 120,
                "alloc_retries_total": 27,
                "ooms_total": 1,
                "device_allocs_total": 300,
                "device_frees_total": 180,
                "device_memory_bytes": 80 * GIB,
            },
        )
    }


def test_the_users_peaks_are_left_alone():
    double = AllocatorDouble(reserved_bytes=1)
    Watched(double).look(times=100)
    assert (double.reads, double.resets) == (100, 0)


def test_only_devices_that_hold_something_are_told():
    double = AllocatorDouble(reserved_bytes=1)
    double.now[3] = {"reserved_bytes": 2}
    double.now[5] = {}  # a context, and nothing from this allocator
    watched = Watched(double)
    assert set(watched.look()) == {0, 3}
    assert double.reads == 3  # one without a context is not even asked


@pytest.mark.parametrize("state", ["is_up", "is_capturing"])
def test_nothing_is_asked_before_cuda_is_up_or_while_a_graph_is_captured(state):
    double = AllocatorDouble(reserved_bytes=1)
    setattr(double, state, state != "is_up")
    watched = Watched(double)
    assert watched.look() == {}
    assert (double.reads, watched.warnings) == (0, [])
    setattr(double, state, state == "is_up")
    assert set(watched.look()) == {0}


def test_the_async_allocator_has_bytes_alone():
    double = AllocatorDouble("cudaMallocAsync", allocated_bytes=3, reserved_bytes=7, active_bytes=3)
    _, values = Watched(double).look()[0]
    assert values == {
        "allocated_bytes": 3,
        "reserved_bytes": 7,
        "active_bytes": 3,
        "allocated_peak_bytes": 3,
        "reserved_peak_bytes": 7,
        "device_memory_bytes": 80 * GIB,
    }


def test_an_allocator_of_somebodys_own_is_not_asked():
    double = AllocatorDouble("pluggable", reserved_bytes=1)
    watched = Watched(double)
    assert watched.look(times=3) == {}
    assert (double.reads, watched.warnings) == (0, [])


def test_figures_that_this_torch_lacks_are_absent():
    double = AllocatorDouble(reserved_bytes=1)
    torch = double.torch()

    def stats(device):
        told = double.stats(device)
        del told["requested_bytes"], told["num_device_alloc"]
        return told

    torch._C._cuda_memoryStats = stats
    _, values = Watched(double, torch).look()[0]
    assert {"requested_bytes", "device_allocs_total"} & values.keys() == set()
    assert values["reserved_bytes"] == 1


@pytest.mark.parametrize(
    "fault", [RuntimeError("CUDA error: device-side assert"), KeyError("all"), OverflowError()]
)
def test_a_fault_is_one_warning_and_the_end_of_it(fault):
    double = AllocatorDouble(reserved_bytes=1)
    double.fault = fault
    watched = Watched(double)
    assert watched.look(times=5) == {}
    assert double.reads == 1
    (line,) = watched.warnings
    assert type(fault).__name__ in line


def test_a_part_of_a_gpu_is_not_called_by_the_whole_ones_name():
    double = AllocatorDouble(reserved_bytes=1)
    double.name = "NVIDIA H200 MIG 1g.18gb"
    uuid, values = Watched(double).look()[0]
    assert uuid == ""
    assert values["device_memory_bytes"] == 80 * GIB


def test_without_properties_the_memory_of_the_device_is_absent():
    double = AllocatorDouble(reserved_bytes=1)
    torch = double.torch()
    del torch.cuda.get_device_properties
    uuid, values = Watched(double, torch).look()[0]
    assert uuid == ""
    assert "device_memory_bytes" not in values


def test_the_wheel_without_cuda_has_no_allocator():
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this torch is built with CUDA")
    watched = Watched(None, torch)
    assert watched.look() == {}
    assert watched.warnings == []

"""When the Flight Recorder is read, and when it is not."""

import sys
import time
from types import SimpleNamespace

import pytest

from pymon.probe import recorder
from pymon.probe.recorder import HANDLERS, Recorder, usable

TORCH = SimpleNamespace(_get_handler_names=lambda: list(HANDLERS.values()))


@pytest.mark.parametrize(
    ("backends", "env", "sources", "said"),
    [
        (("gloo",), {}, ("gloo",), ""),
        (("gloo",), {"TORCH_FR_BUFFER_SIZE": "0"}, (), "TORCH_FR_BUFFER_SIZE=0"),
        (("gloo",), {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, (), "switches"),
        (("gloo", "mpi"), {}, ("gloo",), "mpi: "),
        (("gloo", "nccl"), {}, ("gloo",), "nccl: not read without PYMON_FLIGHT_RECORDER=nccl"),
        (("nccl",), {recorder.ENV: "nccl"}, ("nccl",), ""),
        (("nccl",), {recorder.ENV: "nccl", "TORCH_NCCL_CUDA_EVENT_CACHE": "0"}, (), "cache"),
    ],
)
def test_what_is_not_read_says_why(backends, env, sources, said):
    found, reason = usable(TORCH, frozenset(backends), env)
    assert found == sources
    assert said in reason
    assert bool(reason) == bool(said)


def test_a_torch_without_the_handlers_says_so():
    assert usable(SimpleNamespace(), frozenset({"gloo"}), {})[0] == ()
    assert "gloo: this torch" in usable(SimpleNamespace(), frozenset({"gloo"}), {})[1]


class NativeDouble:
    def __init__(self):
        self.reads, self.published, self.reason = 0, 0, None

    def set_recorder_reason(self, reason):
        self.reason = reason

    def read_recorder(self, source, dump):
        self.reads += 1
        return True

    def publish_recorder(self, cpu_ns, now_mono_ns):
        self.published += 1


@pytest.fixture
def polled(monkeypatch):
    """A recorder at a clock that the test turns; a read costs `cost_s` of processor time."""
    clock = SimpleNamespace(now_s=100.0, cost_s=0.035)
    native, looks = NativeDouble(), iter(range(10**6))
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", TORCH)
    monkeypatch.setattr(recorder, "dumped", lambda *_: "{}")
    monkeypatch.setattr(time, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(time, "thread_time_ns", lambda: round(next(looks) * clock.cost_s * 1e9))
    one = Recorder(native, {})

    def poll(begun, until_s, step_s=0.5, each=0):
        while clock.now_s < until_s:
            one.poll(begun, frozenset({"gloo"}))
            clock.now_s += step_s
            begun += each
        return native.reads

    return poll


def test_a_busy_job_is_read_for_a_thousandth_of_the_time(polled):
    reads = polled(1, 100 + 350, each=10)
    assert reads == pytest.approx(350 / 35, abs=1.5)


def test_ranks_that_stand_still_are_read_once_more_and_then_left_alone(polled):
    before = polled(1, 110, each=10)
    after = polled(1000, 1000)
    assert after - before in (1, 2)  # within four seconds, and where a read fell due just before
    assert polled(1000, 5000) == after


def test_a_cheap_read_comes_once_a_second_at_most(polled, monkeypatch):
    monkeypatch.setattr(time, "thread_time_ns", lambda: 0)
    assert polled(1, 200, each=1) <= 101


def test_without_a_group_nothing_is_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", TORCH)
    native = NativeDouble()
    Recorder(native, {}).poll(0, frozenset())
    assert (native.reads, native.reason) == (0, None)

"""Bursts of hardware counters as a trainer orders them: its own child, on the doubles of libcuda and libcupti."""

import json
import os
import shutil
import sys
import time
from types import SimpleNamespace

import pytest

from pymon import native
from pymon.link.wire import CaptureOrder, CountersOrder
from pymon.probe import counters, counters_child
from pymon.probe.captures import Captures
from pymon.probe.gpu import GpuLayers
from pymon.probe.profiler_registry import ProfilerRegistry
from tests.native.build import gpu_doubles

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.timeout(600),  # the first one builds
    pytest.mark.skipif(native.probe()[0] is None, reason=native.probe()[1]),
]
ATTACH_ID = "0123456789abcdef" * 2
DEADLINE_S = 60.0


class Trainer:
    """What a probe has at hand in a trainer with one GPU; `calls` are those to the activity layer."""

    def __init__(self, spool):
        self.calls = []
        names = ("gpu_start", "gpu_resume", "gpu_note_reserved", "gpu_stop")
        self.native = SimpleNamespace(
            gpu_yield=lambda timeout_ms: self.calls.append("gpu_yield") or True,
            gpu_device=lambda: 0,
            set_step_callback=lambda call: None,
            **{name: (lambda *_, name=name: self.calls.append(name)) for name in names},
        )
        self.registry = ProfilerRegistry()
        self.layers = GpuLayers(self.native, print, {})
        self.layers.poll()
        self.calls.clear()
        self.captures = Captures(self.native, ATTACH_ID, self.registry, self.layers)
        self.spool = spool
        self.folder = spool / f"c1-{ATTACH_ID}"

    def order(self, seconds=0.2):
        return self.captures.accept(CountersOrder("c1", str(self.spool), seconds, 1))

    def receipt(self):
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            if due := self.captures.poll():
                (receipt,) = due
                return receipt
            time.sleep(0.02)
        raise AssertionError("no receipt")

    def child(self):
        return self.captures._counters._burst.child


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(gpu_doubles()))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    # The registry's doors are wrapped for good, and other tests have them too.
    monkeypatch.setattr(ProfilerRegistry, "install", lambda self: setattr(self, "why_not", ""))
    return Trainer(tmp_path)


class Session:
    """As torch.autograd.profiler.profile shows itself."""

    kineto_activities = (SimpleNamespace(name="CUDA"),)


def test_a_burst_leaves_the_sums_and_samples_of_each_metric(trainer):
    assert trainer.order() is None
    receipt = trainer.receipt()

    assert (receipt.status, receipt.reason, receipt.files) == ("written", "", ["counters.json"])
    assert receipt.folder == trainer.folder.name
    burst = json.loads((trainer.folder / "counters.json").read_text())
    samples = burst["samples_total"]
    assert samples > 300
    assert burst["summary"]["sm_active_ratio"]["mean"] == pytest.approx(0.6, rel=0.01)
    assert burst["summary"]["sm_active_ratio"]["max"] == pytest.approx(0.8)
    assert burst["summary"]["dram_bytes"]["total"] == 1000 * samples
    assert burst["summary"]["dram_bytes"]["per_s"] == pytest.approx(2_000_000)
    assert {len(values) for values in burst["samples"].values()} == {samples}
    assert len(burst["end_s"]) == samples
    assert burst["absent"] == []
    assert burst["sm_clock_before_hz"] is None  # no NVML here


def test_a_long_burst_is_sampled_less_often():
    assert counters_child.interval_ns(2.0) == 500_000
    assert counters_child.interval_ns(10.0) == 2_500_000


def test_cupti_is_the_bursts_alone_until_it_is_over(trainer):
    trainer.order()
    assert trainer.calls == ["gpu_yield"]
    trainer.layers.poll()
    assert trainer.layers.lend(object()) == "a profiler has CUPTI"
    assert trainer.calls == ["gpu_yield"]

    trainer.receipt()
    assert trainer.calls == ["gpu_yield", "gpu_resume"]


def test_one_order_at_a_time_of_either_kind(trainer):
    trainer.order()
    for other in (CountersOrder("c2", str(trainer.spool)), CaptureOrder("c2", str(trainer.spool))):
        refused = trainer.captures.accept(other)
        assert (refused.status, refused.reason) == ("refused", "capture c1 is under way here")
    assert trainer.receipt().status == "written"


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"LD_LIBRARY_PATH": "/nonexistent"}, "no NVIDIA driver"),
        ({"DOUBLE_CUPTI_VERSION": "24"}, "too old"),
        ({"DOUBLE_CUPTI_VERSION": "18"}, "older than CUDA 12.4"),
        ({"DOUBLE_CUDA_DEVICE": "Tesla V100;7;0"}, "no PM sampling before Turing"),
        ({"DOUBLE_CUPTI_FAIL": "cuptiPmSamplingEnable=27"}, "has no PM sampling"),
        ({"DOUBLE_CUPTI_FAIL": "cuptiPmSamplingEnable=35"}, "ERR_NVGPUCTRPERM"),
        ({"DOUBLE_CUDA_DEVICE": "Tesla T4;7;5", "DOUBLE_PM_CHIP": "TU102"}, "take 2 passes"),
        ({"DOUBLE_CUPTI_FAIL": "cuptiPmSamplingEnable=7"}, "another profiler has"),
        ({"NSYS_PROFILING_SESSION_ID": "7"}, "Nsight Systems"),
    ],
)
def test_each_refusal_is_told_in_words_and_leaves_nothing(trainer, monkeypatch, variables, says):
    if "/nonexistent" in variables.values() and os.path.exists("/proc/driver/nvidia/version"):
        pytest.skip("this machine has a driver")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    trainer.order()
    receipt = trainer.receipt()

    assert receipt.status == "refused"
    assert says in receipt.reason
    assert not trainer.folder.exists()
    assert trainer.calls == ["gpu_yield", "gpu_resume"]


def test_the_users_profiler_refuses_a_burst(trainer):
    holder = Session()
    trainer.layers.session_opens(holder)
    assert trainer.order().reason == "a profiler has CUPTI"
    trainer.registry._live.add(holder)
    assert trainer.order().reason == "the job's own profiler is running"
    assert not trainer.folder.exists()


def test_the_users_profiler_ends_a_burst_and_has_cupti_to_itself(trainer):
    trainer.order(seconds=10.0)
    child, profile = trainer.child(), Session()
    trainer.registry.on_user_session()
    assert child.returncode is not None
    trainer.layers.session_opens(profile)

    receipt = trainer.receipt()
    assert (receipt.status, receipt.reason) == (
        "failed",
        "the job's own profiler started, and came first",
    )
    assert trainer.calls == ["gpu_yield", "gpu_resume", "gpu_yield"]
    assert not trainer.folder.exists()


def test_a_call_that_hangs_ends_in_a_receipt_and_training_goes_on(trainer, monkeypatch):
    monkeypatch.setattr(counters, "GRACE_S", 1.0)
    monkeypatch.setenv("DOUBLE_CUPTI_HANG", "cuptiPmSamplingDecodeData=1")
    trainer.order()
    child = trainer.child()
    receipt = trainer.receipt()

    assert receipt.status == "failed"
    assert receipt.reason.startswith("a call of CUPTI's had not returned after 1 s")
    assert child.returncode == -9
    assert trainer.calls == ["gpu_yield", "gpu_resume"]
    monkeypatch.delenv("DOUBLE_CUPTI_HANG")
    assert trainer.order() is None
    assert trainer.receipt().status == "written"


def test_the_users_profiler_does_not_wait_for_a_call_that_hangs(trainer, monkeypatch):
    monkeypatch.setenv("DOUBLE_CUPTI_HANG", "cuptiProfilerInitialize=1")
    trainer.order()
    trainer.registry.on_user_session()

    assert trainer.receipt().status == "failed"


def test_a_child_that_no_signal_ends_is_given_up(trainer, monkeypatch):
    monkeypatch.setattr(counters, "GRACE_S", 0.0)
    monkeypatch.setattr(counters, "KILL_S", 0.0)
    trainer.order()
    child = trainer.child()
    monkeypatch.setattr(child, "poll", lambda: None)
    monkeypatch.setattr(child, "kill", lambda: None)
    receipt = trainer.receipt()

    assert "cannot be ended" in receipt.reason
    assert trainer.calls == ["gpu_yield", "gpu_resume"]
    assert child.wait(DEADLINE_S) is not None


def test_a_crash_of_cupti_is_the_childs_alone(trainer, monkeypatch):
    monkeypatch.setenv("DOUBLE_CUPTI_CRASH", "cuptiPmSamplingStart=11")
    trainer.order()

    assert trainer.receipt().reason == "the process that read the counters ended of signal 11"


def test_samples_that_were_lost_are_told(trainer, monkeypatch):
    monkeypatch.setenv("DOUBLE_PM_GAP", "7")
    trainer.order()
    trainer.receipt()

    assert json.loads((trainer.folder / "counters.json").read_text())["samples_lost"] == 7


def test_without_cuda_or_a_known_gpu_there_is_no_burst(trainer, monkeypatch):
    trainer.native.gpu_device = lambda: -1
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "which GPU" in trainer.order().reason
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert trainer.order().reason == "CUDA is not in use in this process"
    assert trainer.order(seconds=11.0).reason == "a burst lasts 10 s at most"


def test_the_childs_gpu_is_the_trainers_whatever_the_environment_says_now(trainer, monkeypatch):
    started = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="ab-1"))
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/x/libpymon_inject.so")
    monkeypatch.setattr(
        counters.subprocess,
        "Popen",
        lambda command, env, **_: started.append((command, env)) or 1 / 0,
    )
    assert "division by zero" in trainer.order().reason
    ((command, env),) = started

    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-ab-1"
    assert json.loads(command[5])["device"] == 0
    assert "CUDA_INJECTION64_PATH" not in env
    assert command[0] == sys.executable


def test_a_python_that_cannot_be_started_is_a_refusal(trainer, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert "cannot be started" in trainer.order().reason
    assert trainer.calls == ["gpu_yield", "gpu_resume"]


def test_the_child_ends_when_the_trainer_is_gone(trainer):
    trainer.order(seconds=10.0)
    child = trainer.child()
    child.stdin.close()

    assert child.wait(DEADLINE_S) == 0
    shutil.rmtree(trainer.folder)

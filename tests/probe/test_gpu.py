"""The GPU layers in a trainer, on the doubles of libcuda and libcupti (tests/probe/gpu_double.py)."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from pymon import native
from pymon.link.page import PageReader
from pymon.probe.gpu import GpuLayers
from tests.native.build import ROOT, gpu_doubles

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(native.probe()[0] is None, reason=native.probe()[1]),
]


@contextmanager
def trainer(*arguments, **env):
    """The page of a trainer that has made its steps, what it printed, and its exit code once it ended."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.probe.gpu_double", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(gpu_doubles()),
            "PYMON_SOCKET": "/nonexistent/agent.sock",
            **env,
        },
    )
    try:
        yield from _running(process)
    finally:
        process.kill()


def _running(process):
    line = process.stdout.readline()
    assert line, process.stderr.read()
    ended = SimpleNamespace(said=json.loads(line), code=None, errors="", pid=process.pid)

    def wait():
        if ended.code is None:
            _, ended.errors = process.communicate("\n", timeout=60)
            ended.code = process.returncode

    ended.wait = wait
    page = PageReader.open(page_of(process.pid))
    yield page, ended
    wait()
    page.close()


def page_of(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        if "memfd:pymon-page" in os.readlink(path):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    raise AssertionError("no page")


class TestInATrainer:
    def test_gpu_time_of_steps_and_phases_and_sums_by_class(self):
        with trainer("20") as (page, ended):
            gpu, cupti = page.gpu(), page.cupti()
            steps = page.gpu_steps_after(0)
        assert ended.said["layers"]["events"] == ["running", "running"]
        assert gpu.steps_timed_total >= 18
        step_ms = gpu.step_ns_total / gpu.steps_timed_total / 1e6
        assert step_ms >= 5.9  # 2 + 3 + 1 ms of work, and the stream's waits
        forward, backward, optimizer = (
            gpu.phase_ns_total[slot] / gpu.steps_timed_total / 1e6 for slot in (1, 2, 3)
        )
        assert backward >= 2.9
        assert optimizer >= 0.9
        assert (
            forward + sum(gpu.phase_ns_total[i] for i in (0, 4)) / gpu.steps_timed_total / 1e6
            >= 1.9
        )
        assert sum(gpu.phase_ns_total) == gpu.step_ns_total
        assert [step.step for step in steps][-1] == gpu.last_step
        work = dict(cupti.work)
        assert work["gemm"].count >= 200
        assert work["gemm"].ns_total == work["gemm"].count * 20_000
        assert work["nccl_all_reduce"].count >= 20
        assert cupti.nccl_exposed_ns_total == work["nccl_all_reduce"].ns_total
        assert ended.code == 0
        assert ended.errors == ""

    def test_the_end_of_the_process_says_so_in_the_page(self):
        with trainer("4") as (page, ended):
            assert page.cupti().state == "running"
            ended.wait()
            assert page.cupti().state == "disarmed"
            assert page.cupti().reason == "the process ends"
            assert page.gpu().state == "disarmed"
        assert ended.code == 0

    def test_a_profiler_session_borrows_cupti_and_gives_it_back(self):
        with trainer("20", "profile") as (page, ended):
            cupti = page.cupti()
        assert ended.said["states"] == ["yielded", "running"]
        assert cupti.handovers_total == 1
        assert cupti.buffers_lost_total == 0
        assert cupti.stolen_total == 0

    def test_a_forks_child_has_no_layers_and_leaves_the_parents_alone(self):
        with trainer("10", "fork") as (page, ended):
            timed, records = page.gpu().steps_timed_total, page.cupti().records_total
        for layers in ended.said["child"]:
            assert {state for state, _ in layers.values()} <= {"off", "absent"}
        assert timed >= 9
        assert records in (110, 121)  # ten steps and maybe the first: none of the child's two
        assert ended.said["layers"]["cupti"] == ["running", "running"]
        assert ended.code == 0

    def test_layers_that_were_switched_off_come_back_and_the_time_between_is_no_steps(self):
        with trainer("20", "disarm") as (page, ended):
            gpu, cupti, steps = page.gpu(), page.cupti(), page.train().steps_total
            longest_ns = max(step.gpu_ns for step in page.gpu_steps_after(0))
        off, on = ended.said["switched"]
        assert off["cupti"] == ["yielded", "switched off by `pymon disarm`"]
        assert on["cupti"] == on["events"] == ["running", "running"]
        assert (gpu.last_step, steps) == (21, 21)  # five more were not watched
        assert gpu.steps_timed_total in (18, 19)  # the first is not, nor is the one after the gap
        assert longest_ns < 500_000_000  # a second lay between; a step has 6 ms of work
        assert cupti.handovers_total == 1
        assert cupti.records_total in (220, 231)  # maybe the first, and none of the five

    def test_an_evaluation_is_no_steps_gpu_time(self):
        with trainer("20", "evaluate") as (page, _):
            gpu = page.gpu()
            longest_ns = max(step.gpu_ns for step in page.gpu_steps_after(0))
        assert gpu.last_step == 21
        assert gpu.steps_timed_total in (18, 19)
        assert longest_ns < 500_000_000

    def test_no_signal_handler_is_installed(self):
        with trainer("2") as (_, ended):
            before, after = ended.said["handlers"]
        assert before == after

    def test_a_script_that_ends_in_an_exception_ends_with_it(self):
        with trainer("2", "raise") as (page, ended):
            ended.wait()
            assert page.cupti().state == "disarmed"
        assert ended.code == 1
        assert "RuntimeError: planned" in ended.errors

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
    def test_a_killed_trainer_dies_of_its_signal_and_its_page_can_be_read(self, number):
        with trainer("3") as (page, ended):
            os.kill(ended.pid, number)
            ended.wait()
            assert page.cupti().records_total > 0
        assert ended.code == -number

    def test_the_interpreter_ends_while_another_thread_is_in_a_layers_call(self):
        """Python ends such a thread where it asks for the GIL again; that must not abort the process."""
        with trainer("2", "leave_in_call") as (_, ended):
            ended.wait()
        assert ended.code == 0
        assert ended.errors == ""

    def test_layers_can_be_chosen(self):
        with trainer("4", PYMON_GPU_LAYERS="cupti") as (page, _):
            assert page.gpu().state == "absent"
            assert page.gpu().reason == "switched off by PYMON_GPU_LAYERS"
            assert page.cupti().records_total > 0


@pytest.fixture
def layers():
    """GpuLayers on a double of the native module that notes its calls; CUDA is up."""
    calls = []
    names = ("gpu_start", "gpu_resume", "gpu_stop", "gpu_leave_cupti", "gpu_note_reserved")
    names += ("gpu_leave_gap",)
    double = SimpleNamespace(
        gpu_yield=lambda timeout_ms, why="": calls.append(("gpu_yield",)) or True,
        gpu_device=lambda: -1,
        **{name: (lambda *args, name=name: calls.append((name, *args))) for name in names},
    )
    warned = []
    made = GpuLayers(double, warned.append, {})
    made.calls, made.warned, made.double = calls, warned, double
    return made


class Session:
    """As torch.autograd.profiler.profile shows itself."""

    def __init__(self, *activities):
        self.kineto_activities = tuple(SimpleNamespace(name=name) for name in activities)


class TestLending:
    @pytest.fixture(autouse=True)
    def cuda_is_up(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    def test_nothing_starts_before_cuda_is_up(self, layers, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
        layers.poll()
        assert layers.calls == []

    def test_a_session_that_was_open_first_keeps_cupti_until_its_end(self, layers):
        session = Session("CPU", "CUDA")
        layers.session_opens(session)
        layers.poll()
        assert layers.calls == []
        layers.session_ends(session)
        layers.poll()
        assert [call[0] for call in layers.calls] == ["gpu_start"]

    def test_a_session_without_the_gpu_leaves_cupti_alone(self, layers):
        layers.poll()
        layers.session_opens(Session("CPU"))
        assert [call[0] for call in layers.calls] == ["gpu_start"]

    def test_a_session_that_is_dropped_without_an_end_gives_cupti_back(self, layers):
        layers.poll()
        session = Session("CUDA")
        layers.session_opens(session)
        layers.poll()
        assert ("gpu_resume",) not in layers.calls
        del session
        layers.poll()
        assert layers.calls.count(("gpu_resume",)) == 1

    def test_a_dropped_session_that_torch_still_profiles_with_keeps_cupti(
        self, layers, monkeypatch
    ):
        layers.poll()
        session = Session("CUDA")
        layers.session_opens(session)
        del session
        monkeypatch.setattr(torch.autograd.profiler, "_is_profiler_enabled", True)
        layers.poll()
        assert ("gpu_resume",) not in layers.calls
        monkeypatch.setattr(torch.autograd.profiler, "_is_profiler_enabled", False)
        layers.poll()
        assert layers.calls.count(("gpu_resume",)) == 1

    def test_a_session_of_torchs_own_kind_that_records_the_gpu_gets_cupti(self, layers):
        layers.poll()
        session = torch.autograd.profiler.profile()
        session.kineto_activities.add(torch.profiler.ProfilerActivity.CUDA)
        layers.session_opens(session)
        assert layers.calls[-1] == ("gpu_yield",)

    def test_two_ends_of_one_session_give_back_once(self, layers):
        layers.poll()
        session = Session("CUDA")
        layers.session_opens(session)
        layers.session_opens(session)
        layers.session_ends(session)
        layers.session_ends(session)
        assert layers.calls.count(("gpu_yield",)) == 1
        assert layers.calls.count(("gpu_resume",)) == 1

    def test_what_the_budget_leaves_away_is_lent_to_nobody_and_comes_back_once(self, layers):
        layers.poll()
        layers.shed(True)
        layers.shed(True)
        assert layers.calls.count(("gpu_yield",)) == 1
        session = Session("CUDA")
        layers.session_opens(session)
        layers.session_ends(session)
        layers.poll()
        assert layers.calls.count(("gpu_yield",)) == 2  # yields nest
        assert layers.calls.count(("gpu_resume",)) == 1
        layers.shed(False)
        layers.shed(False)
        assert layers.calls.count(("gpu_resume",)) == 2

    def test_layers_that_are_left_away_do_not_start(self, layers):
        layers.shed(True)
        layers.poll()
        assert layers.calls == []
        layers.shed(False)
        layers.poll()
        assert [call[0] for call in layers.calls] == ["gpu_start"]

    def test_a_slow_hand_over_is_one_warning_and_no_error(self, layers):
        layers.poll()
        layers.warned.clear()
        layers.double.gpu_yield = lambda timeout_ms: False
        layers.session_opens(Session("CUDA"))
        assert len(layers.warned) == 1

    @pytest.mark.parametrize(
        ("module", "shows"),
        [
            ("torch.profiler._cupti_monitor", lambda it: {"_monitor_singleton": it}),  # 2.13
            (  # 2.14
                "torch.profiler._cupti.monitor",
                lambda it: {"CuptiMonitor": SimpleNamespace(_instance=it)},
            ),
        ],
    )
    def test_torchs_own_cupti_monitor_switches_the_layer_off(
        self, layers, monkeypatch, module, shows
    ):
        """By doubles of the modules; csrc tests that CUPTI is then not touched any more."""
        layers.poll()
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**shows(None)))
        layers.poll()
        assert "gpu_leave_cupti" not in [call[0] for call in layers.calls]
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**shows(object())))
        layers.poll()
        assert layers.calls[-1] == (
            "gpu_leave_cupti",
            f"torch's own CUPTI monitor is in use ({module})",
        )

    def test_unknown_layers_are_named(self):
        warned = []
        GpuLayers(None, warned.append, {"PYMON_GPU_LAYERS": "events,nvtx"})
        assert "no layer nvtx" in warned[0]

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("", {"events", "cupti"}),
            ("none", set()),
            ("0", set()),
            ("events", {"events"}),
            ("sync", {"cupti", "sync"}),
            ("events, sync", {"events", "cupti", "sync"}),
            ("nvtx", set()),
        ],
    )
    def test_what_the_variable_switches_on(self, layers, text, wanted):
        made = GpuLayers(layers.double, layers.warned.append, {"PYMON_GPU_LAYERS": text})
        made.poll()
        name, _, _, no_events, no_cupti, synchronisations = layers.calls[-1]
        assert name == "gpu_start"
        off = "switched off by PYMON_GPU_LAYERS"
        on = {name for name, why in (("events", no_events), ("cupti", no_cupti)) if why != off}
        assert on | ({"sync"} if synchronisations else set()) == wanted

    def test_sessions_of_torch_pass_through_the_registry(self, layers):
        from pymon.probe.profiler_registry import registry

        registry().install()
        seen = []
        registry().on_open, registry().on_end = seen.append, seen.append
        try:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                torch.ones(1).sum()
        finally:
            registry().on_open = registry().on_end = None
        assert len(seen) == 2
        assert seen[0] is seen[1]

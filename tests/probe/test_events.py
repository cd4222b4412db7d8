"""Events that need a GPU, or another torch, through doubles of torch's own functions."""

import sys
from types import SimpleNamespace

import pytest

from pymon.probe.compiling import Compiling
from pymon.probe.events import Events, watch_cache, watch_graphs


class NativeDouble:
    """Remembers what is noted."""

    def __init__(self):
        self.noted, self.watched, self.benchmark = [], set(), None

    def note_event(self, kind, begin_mono_ns, duration_ns, detail=0, times=1):
        assert begin_mono_ns > 0
        assert duration_ns >= 0
        self.noted.append((kind, times))

    def watch_event(self, kind):
        self.watched.add(kind)

    def set_cudnn_benchmark(self, on):
        self.benchmark = on


class GraphDouble:
    """torch.cuda.CUDAGraph's way of calling."""

    fails = False

    def capture_begin(self, pool=None, capture_error_mode="global"):
        return ("begin", pool, capture_error_mode)

    def capture_end(self):
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        return "end"


@pytest.fixture
def native():
    return NativeDouble()


def test_cache_flushes_by_either_way_are_noted(native):
    calls = []
    c = SimpleNamespace(
        _cuda_emptyCache=lambda: calls.append("cuda"),
        _accelerator_emptyCache=lambda: calls.append("any"),
    )
    watch_cache(native, SimpleNamespace(_C=c))
    c._cuda_emptyCache()
    c._accelerator_emptyCache()
    assert calls == ["cuda", "any"]
    assert native.noted == [("cache_flush", 1)] * 2
    assert native.watched == {"cache_flush"}


def test_a_graph_capture_is_timed_from_begin_to_end(native):
    graph_class = type("Graph", (GraphDouble,), {})
    watch_graphs(native, graph_class)
    graph = graph_class()
    assert graph.capture_begin("pool", capture_error_mode="relaxed") == ("begin", "pool", "relaxed")
    assert native.noted == []
    assert graph.capture_end() == "end"
    assert native.noted == [("graph_capture", 1)]


def test_a_capture_that_fails_stays_the_users_exception(native):
    graph_class = type("Graph", (GraphDouble,), {"fails": True})
    watch_graphs(native, graph_class)
    graph = graph_class()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="not permitted"):
        graph.capture_end()
    assert native.noted == [("graph_capture", 1)]


@pytest.mark.parametrize("on", [True, False])
def test_the_benchmark_setting_is_read_once_cuda_is_up(native, monkeypatch, on):
    up = []
    torch = SimpleNamespace(
        _C=SimpleNamespace(_get_cudnn_benchmark=lambda: on),
        cuda=SimpleNamespace(is_initialized=lambda: bool(up)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    events = Events(native)
    events.poll()
    assert native.benchmark is None
    up.append(True)
    events.poll()
    assert native.benchmark is on


class HandlerDouble:
    """torch._dynamo.callback.callback_handler; before 2.7 its calls carried nothing."""

    def __init__(self):
        self.start_callbacks, self.end_callbacks = [], []

    def register_start_callback(self, callback):
        self.start_callbacks.append(callback)

    def register_end_callback(self, callback):
        self.end_callbacks.append(callback)

    def compile(self, *about):
        for callback in (*self.start_callbacks, *self.end_callbacks):
            callback(*about)


@pytest.fixture
def handler(native, monkeypatch):
    handler = HandlerDouble()
    monkeypatch.setitem(
        sys.modules, "torch._dynamo.callback", SimpleNamespace(callback_handler=handler)
    )
    Compiling(native).install()
    return handler


@pytest.mark.parametrize(
    ("compile_id", "kind"),
    [
        ("0/0", "compile"),
        ("3/0_1", "compile"),
        ("12/2", "recompile"),
        ("!1/4/1", "recompile"),
        ("None", "compile"),
    ],
)
def test_a_frame_that_was_compiled_before_is_recompiled(native, handler, compile_id, kind):
    trigger = SimpleNamespace(name="DYNAMO")
    handler.compile(SimpleNamespace(compile_id=compile_id, callback_trigger=trigger))
    assert native.noted == [(kind, 1)]


def test_an_older_torch_is_asked_for_the_compile_id(native, handler, monkeypatch):
    context = SimpleNamespace(current_compile_id=lambda: "0/1")
    monkeypatch.setitem(sys.modules, "torch._guards", SimpleNamespace(CompileContext=context))
    handler.compile()
    assert native.noted == [("recompile", 1)]


def test_compilations_within_one_another_are_one(native, handler):
    begin, end = handler.start_callbacks[0], handler.end_callbacks[0]
    for call in (begin, begin, end, end):
        call()
    assert len(native.noted) == 1


def test_a_recording_of_a_cuda_graph_is_no_compilation(native, handler):
    trigger = SimpleNamespace(name="CUDAGRAPH_RECORDING")
    handler.compile(SimpleNamespace(compile_id="0/0", callback_trigger=trigger))
    assert native.noted == []


def test_nothing_of_ours_reaches_a_compiled_call(native, handler):
    handler.compile(object())  # not what we know
    handler.compile(None)
    assert native.noted in ([], [("compile", 1)])

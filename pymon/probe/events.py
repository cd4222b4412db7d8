"""Events that explain a slow step: where each is seen, and why one is not. docs/probe.md has the table."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import time
from typing import Any

from pymon.probe.compiling import Compiling


class Events:
    """One per process, for good: a fork's child keeps the hooks, and its own page."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._compiling = Compiling(native)

    def install(self, torch: Any) -> None:
        """Right after torch has been imported."""
        native = self._native
        gc.callbacks.append(native.gc_event)
        for kind in ("gc_young", "gc_full", "checkpoint_save", "checkpoint_background"):
            native.watch_event(kind)
        self._compiling.install()
        if hasattr(torch._C, "_cuda_emptyCache"):
            watch_cache(native, torch)
            watch_graphs(native, torch.cuda.graphs.CUDAGraph)
        else:
            native.set_unseen_events("graph_capture, cache_flush: this torch is built without CUDA")

    def poll(self) -> None:
        """Sender thread, each tick."""
        self._compiling.poll()
        torch = sys.modules.get("torch")
        cudnn = getattr(getattr(torch, "_C", None), "_get_cudnn_benchmark", None)
        if torch is not None and cudnn is not None and torch.cuda.is_initialized():
            self._native.set_cudnn_benchmark(bool(cudnn()))

    def saved(self, begin_mono_ns: int, end_mono_ns: int) -> None:
        """The saving thread, at the end of a checkpoint save (`checkpoints`)."""
        kind = "checkpoint_save" if self._trains() else "checkpoint_background"
        self._native.note_event(kind, begin_mono_ns, end_mono_ns - begin_mono_ns)

    def _trains(self) -> bool:
        """Whether this thread is the one that trains; before that is known, the main one."""
        if training := self._native.training_tid():
            return bool(threading.get_native_id() == training)
        return threading.current_thread() is threading.main_thread()


def watch_cache(native: Any, torch: Any) -> None:
    """`torch._C`'s own functions, behind the public ones, which call them only when the device is up."""
    for name in ("_cuda_emptyCache", "_accelerator_emptyCache"):  # the second since 2.9
        if (original := getattr(torch._C, name, None)) is not None:
            setattr(torch._C, name, _timed(native, "cache_flush", original))
    native.watch_event("cache_flush")


def watch_graphs(native: Any, graph: Any) -> None:
    """From `capture_begin` to the end of `capture_end`, which `torch.cuda.graph` and Inductor call too."""
    begins_ns: dict[
        int, int
    ] = {}  # by the graph's id; one that never ended goes with the next of its id
    capture_begin, capture_end = graph.capture_begin, graph.capture_end

    @functools.wraps(capture_begin)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        begins_ns[id(self)] = time.monotonic_ns()
        return capture_begin(self, *args, **kwargs)

    @functools.wraps(capture_end)
    def end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return capture_end(self, *args, **kwargs)
        finally:
            if begin_ns := begins_ns.pop(id(self), 0):
                native.note_event("graph_capture", begin_ns, time.monotonic_ns() - begin_ns)

    graph.capture_begin, graph.capture_end = begin, end
    native.watch_event("graph_capture")


def _timed(native: Any, kind: str, original: Any) -> Any:
    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        begin_ns = time.monotonic_ns()
        try:
            return original(*args, **kwargs)
        finally:
            native.note_event(kind, begin_ns, time.monotonic_ns() - begin_ns)

    return timed

"""Compilations, recompilations and graph breaks, as torch._dynamo itself tells of them. Nothing is imported for it."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

from pymon.probe.on_import import after_import

_CALLBACKS = "torch._dynamo.callback"  # since 2.3; since 2.7 the calls carry the compile id


class Compiling:
    """Notes into `native`; made once."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._depth = 0
        self._begin_ns = 0
        self._again = False
        self._breaks = 0

    def install(self) -> None:
        after_import(_CALLBACKS, self._register)

    def poll(self) -> None:
        """Any thread, now and then: `torch._dynamo.reset()` forgets callbacks, and what broke a graph is counted."""
        if (module := sys.modules.get(_CALLBACKS)) is not None:
            self._register(module)
            self._count_breaks()

    def _register(self, module: Any) -> None:
        handler = module.callback_handler
        if self._begin not in handler.start_callbacks:
            self._depth = 0
            handler.register_start_callback(self._begin)
            handler.register_end_callback(self._end)
            for kind in ("compile", "recompile", "graph_break"):
                self._native.watch_event(kind)

    # An exception here would be one of the user's compiled call.
    def _begin(self, *about: Any) -> None:
        with contextlib.suppress(Exception):
            self._depth += 1
            if self._depth == 1:
                self._begin_ns = time.monotonic_ns()
                self._again = _compiled_before(about)

    def _end(self, *about: Any) -> None:
        with contextlib.suppress(Exception):
            self._depth = max(0, self._depth - 1)
            if self._depth or not self._begin_ns:
                return
            begin_ns, self._begin_ns = self._begin_ns, 0
            if not _records_graph(about):  # a CUDA graph: seen where it is captured
                kind = "recompile" if self._again else "compile"
                self._native.note_event(kind, begin_ns, time.monotonic_ns() - begin_ns)
            self._count_breaks()

    def _count_breaks(self) -> None:
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
        breaks = sum(dict(counters.get("graph_break", {})).values())
        more, self._breaks = breaks - self._breaks, breaks
        if more > 0:  # less: the user has cleared them
            self._native.note_event("graph_break", time.monotonic_ns(), 0, more, more)


def _compiled_before(about: tuple[Any, ...]) -> bool:
    """By the compile id, as `[autograd/]frame/count[_attempt]`: the count of a frame's first compilation is 0."""
    text = str(about[0].compile_id) if about else _current_compile_id()
    count = text.rpartition("/")[2].partition("_")[0]
    return count.isdecimal() and int(count) > 0


def _current_compile_id() -> str:
    context = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    return str(context.current_compile_id()) if context is not None else ""


def _records_graph(about: tuple[Any, ...]) -> bool:
    return bool(about) and getattr(about[0].callback_trigger, "name", "") == "CUDAGRAPH_RECORDING"

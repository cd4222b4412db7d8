"""torch's Flight Recorder, read now and then: docs/collectives.md.

The recorder keeps the last 2,000 collectives (`TORCH_FR_BUFFER_SIZE`), those of DDP's reducer and of FSDP too. The
handlers of torch's debug server give them as text without the interpreter lock, which its Python functions hold for
all of the 35 ms that a full ring takes; `pymon.native._probe` reads the text without that lock, too.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from pymon.probe.budget import DEFAULT_RATIO

ENV = "PYMON_FLIGHT_RECORDER"
EACH_S = 1.0
# Of one processor, beside the training. Ranks that stand still lose nothing by a look, and need it: that one may cost
# the budget itself.
SHARE = DEFAULT_RATIO / 10
SHARE_STILL = DEFAULT_RATIO
HANDLERS = {"gloo": "fr_trace_json", "nccl": "dump_nccl_trace_json"}
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_EVENT_CACHES = ("TORCH_NCCL_CUDA_EVENT_CACHE",)


class Recorder:
    """One per process. `native` is `pymon.native._probe`."""

    def __init__(self, native: Any, env: Mapping[str, str] = os.environ) -> None:
        self._native, self._env = native, env
        self._reason: str | None = None
        self._begun = self._told = -1
        self._cost_s = 0.0
        self._read_s = self._moved_s = -math.inf
        self._reading: threading.Thread | None = None

    def poll(self, begun: int, backends: frozenset[str]) -> None:
        """Sender thread, each tick; `begun` is the sum of the groups' sequence numbers."""
        c10d = sys.modules.get("torch._C._distributed_c10d")
        if c10d is None or not backends or not self._is_due(begun, time.monotonic()):
            return
        sources, reason = usable(c10d, backends, self._env)
        if reason != self._reason:
            self._reason = reason
            self._native.set_recorder_reason(reason)
        if "nccl" not in sources:
            self._read(c10d, sources)
        elif self._reading is None or not self._reading.is_alive():
            # A lock of NCCL's recorder may be held by a watchdog that hangs in a CUDA call: the sender does not wait.
            self._reading = threading.Thread(
                target=self._read, args=(c10d, sources), name="pymon-recorder", daemon=True
            )
            self._reading.start()

    def _is_due(self, begun: int, now_s: float) -> bool:
        if begun != self._begun:
            self._begun, self._moved_s = begun, now_s
        moved, settled = begun != self._told, self._read_s - self._moved_s >= self._still_s
        if settled or (not moved and now_s - self._moved_s < self._still_s):
            return False
        due = now_s - self._read_s >= max(EACH_S, self._cost_s / SHARE)
        return due or now_s - self._moved_s >= self._still_s

    @property
    def _still_s(self) -> float:
        return max(EACH_S, self._cost_s / SHARE_STILL)

    def _read(self, c10d: Any, sources: tuple[str, ...]) -> None:
        self._told, self._read_s = self._begun, time.monotonic()
        before_ns = time.thread_time_ns()
        for source in sources:
            if source == "nccl":
                relax_capture()
            if text := dumped(c10d, HANDLERS[source]):
                self._native.read_recorder(source, text)
        spent_ns = time.thread_time_ns() - before_ns
        self._cost_s = spent_ns / 1e9
        self._native.publish_recorder(spent_ns, time.monotonic_ns())


def usable(
    c10d: Any, backends: frozenset[str], env: Mapping[str, str]
) -> tuple[tuple[str, ...], str]:
    """The recorders that can be read, and why the others cannot."""
    if any(env.get(name) == "0" for name in _SIZES):
        return (), "TORCH_FR_BUFFER_SIZE=0 switches torch's Flight Recorder off"
    names = c10d._get_handler_names() if hasattr(c10d, "_get_handler_names") else ()
    sources, reasons = [], []
    for backend in sorted(backends):
        if HANDLERS.get(backend) not in names:
            reasons.append(f"{backend}: this torch has no Flight Recorder for it that can be read")
        elif backend == "nccl" and env.get(ENV) != "nccl":
            reasons.append(f"nccl: not read without {ENV}=nccl")
        elif backend == "nccl" and any(env.get(name) in ("0", "false") for name in _EVENT_CACHES):
            # Without the cache a finished work's events are freed, and a look may meet one that just was.
            reasons.append("nccl: not read without torch's cache of CUDA events")
        else:
            sources.append(backend)
    return tuple(sources), "; ".join(reasons)


def dumped(c10d: Any, handler: str) -> str:
    """What the handler says; empty where it refuses."""
    request, response = _messages(c10d)
    answer = response()
    c10d._get_handler(handler)(request(), answer)
    return str(answer.said)


@functools.cache
def _messages(c10d: Any) -> tuple[type, type]:
    class Request(c10d._Request):  # type: ignore[misc]
        def body(self) -> bytes:
            return b""

        def params(self) -> dict[str, str]:
            return {}

    class Response(c10d._Response):  # type: ignore[misc]
        said, status = "", 200

        def set_content(self, content: str, content_type: str) -> None:
            self.said = content if self.status == 200 else ""

        def set_status(self, status: int) -> None:
            self.status = status
            self.said = self.said if status == 200 else ""

    return Request, Response


def relax_capture() -> None:
    """What this thread asks of CUDA events invalidates no CUDA graph that another one captures."""
    mode = ctypes.c_int(_RELAXED)
    ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

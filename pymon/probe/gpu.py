"""The GPU layers of this process (csrc/gpu), started late and lent out to profilers.

Late: when CUDA is up, because asking CUDA anything before would break it in forked children. Lent: a profiler session
that records the GPU needs CUPTI for itself, the user's and ours alike, from its preparation (which for torch.profiler
is the warm-up) to its end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

LAYERS = (
    "events",
    "cupti",
    "sync",
)  # what PYMON_GPU_LAYERS may name; `sync` adds the host's waits to `cupti`
DEFAULT_LAYERS = "events,cupti"
YIELD_MS = 1000  # a hand-over takes under a millisecond, or as long as CUPTI takes to give its buffers back
EXIT_MS = 500
# torch's own use of the same interface (since 2.13, experimental): the module is loaded by the first profiler range of
# any kind, its singleton is made by who really uses it. Of 2.13, and of 2.14.
_TORCH_MONITORS = (
    ("torch.profiler._cupti_monitor", "_monitor_singleton"),
    ("torch.profiler._cupti.monitor", "CuptiMonitor._instance"),
)
_RESERVED_EVERY_S = 10.0  # as often as the layer's guard looks (csrc/gpu/self_guard.h)


class GpuLayers:
    """One per process. `native` is `pymon.native._probe`; `warn` takes one line for the user."""

    def __init__(
        self, native: Any, warn: Callable[[str], None], env: Mapping[str, str] = os.environ
    ) -> None:
        self._native, self._warn = native, warn
        self._pid = os.getpid()
        self._started = False
        # With PYMON=1 the injected library stands back (csrc/inject).
        injected = "libpymon_inject" in env.get("CUDA_INJECTION64_PATH", "")
        self._is_injected = injected and env.get("PYMON") not in ("0", "1")
        self._layers = _named(env.get("PYMON_GPU_LAYERS", DEFAULT_LAYERS), warn)
        # A session that was dropped without an end must not keep CUPTI for good.
        self._sessions: weakref.WeakSet[Any] = weakref.WeakSet()
        self._shedding = _Shedding()
        # A session that opens while the layers start waits for that, some milliseconds: else they would take CUPTI
        # from under it.
        self._lock = threading.Lock()
        self._lent = 0
        self._saw_monitor = False
        self._reserved_at_s = 0.0

    @property
    def is_of_this_process(self) -> bool:
        """False in a fork's child, which needs its own."""
        return os.getpid() == self._pid

    def poll(self) -> None:
        """Sender thread, each tick: starts the layers once CUDA is up, and tells them what torch has reserved."""
        torch = sys.modules.get("torch")
        if torch is None or not self.is_of_this_process or not torch.cuda.is_initialized():
            return
        if not self._started:
            with self._lock:
                self._start(torch)
            return
        if (monitor := _torch_monitor()) and not self._saw_monitor:
            self._saw_monitor = True
            self._native.gpu_leave_cupti(f"torch's own CUPTI monitor is in use ({monitor})")
        # A dropped session may still be what Kineto runs: only torch's own word ends that.
        if not _profiles(torch):
            with self._lock:
                while self._lent > len(self._sessions):
                    self._lent -= 1
                    self._native.gpu_resume()
        if time.monotonic() - self._reserved_at_s >= _RESERVED_EVERY_S:
            self._reserved_at_s = time.monotonic()
            with contextlib.suppress(Exception):  # other allocators have no such figures
                self._note_reserved(torch)

    def _start(self, torch: Any) -> None:
        if len(self._sessions) or _profiles(torch) or _torch_monitor():
            return  # CUPTI may be taken; after it
        self._started = True
        device = getattr(torch._C, "_cuda_getDevice", None)
        raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        off = "switched off by PYMON_GPU_LAYERS"
        no_events = "" if "events" in self._layers else off
        if not no_events and (device is None or raw_stream is None):
            no_events = f"torch {torch.__version__} does not tell its current stream"
        no_cupti = "" if "cupti" in self._layers else off
        if not no_cupti and self._is_injected:
            no_cupti = "CUDA_INJECTION64_PATH: pymon's injected core has CUPTI already"
        self._native.gpu_start(device, raw_stream, no_events, no_cupti, "sync" in self._layers)
        atexit.register(self._stop_at_exit)

    def _note_reserved(self, torch: Any) -> None:
        device = self._native.gpu_device()
        stats = getattr(torch._C, "_cuda_memoryStats", None)
        if device < 0 or stats is None:
            return
        self._native.gpu_note_reserved(int(stats(device)["reserved_bytes"]["all"]["current"]))

    def _add(self, holder: Any) -> bool:
        """With the lock: CUPTI is this one's too; whether the layers run and have to hand it over."""
        self._sessions.add(holder)
        self._lent += self._started
        return self._started

    def session_opens(self, session: Any) -> None:
        """The thread that profiles, before the profiler takes CUPTI."""
        if not _records_gpu(session) or session in self._sessions or not self.is_of_this_process:
            return
        with self._lock:
            hands_over = self._add(session)
        if hands_over and not self._native.gpu_yield(YIELD_MS):
            self._warn("CUPTI was not free in time: this profile may lack GPU events")

    def session_ends(self, session: Any) -> None:
        """Likewise, after the profiler has let go."""
        if session not in self._sessions or not self.is_of_this_process:
            return
        with self._lock:
            self._sessions.discard(session)
            if self._lent > 0:
                self._lent -= 1
                self._native.gpu_resume()

    def shed(self, on: bool, why: str = "") -> None:
        """Sender thread: CUPTI is given up while `on`, as to a profiler. Marks come with the hooks that make them."""
        with self._lock:
            if self._started:
                self._native.gpu_leave_gap()  # the step in which they went or come has no time
            if on == (self._shedding in self._sessions):
                return
            hands_over = on and self._add(self._shedding)
        if hands_over:
            self._native.gpu_yield(YIELD_MS, why)
        elif not on:
            self.session_ends(self._shedding)

    def lend(self, holder: Any) -> str:
        """CUPTI for a burst of counters, until `session_ends(holder)` or the holder is gone; why not, where not."""
        with self._lock:
            if any(session is not self._shedding for session in self._sessions):
                return "a profiler has CUPTI"
            hands_over = self._add(holder)
        if not hands_over or self._native.gpu_yield(YIELD_MS):
            return ""
        self.session_ends(holder)
        return f"CUPTI was not free within {YIELD_MS / 1000:.0f} s"

    def _stop_at_exit(self) -> None:
        if self.is_of_this_process:
            self._native.gpu_stop("the process ends", EXIT_MS)


class _Shedding:
    """Stands among the sessions while the budget leaves CUPTI away."""


def _profiles(torch: Any) -> bool:
    """Whether torch's profiler runs in any thread: the flag of its Python side, as the other is only this thread's."""
    return bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False))


def _torch_monitor() -> str:
    for module, path in _TORCH_MONITORS:
        found: Any = sys.modules.get(module)
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is not None:
            return module
    return ""


def _records_gpu(session: Any) -> bool:
    """Whether this `torch.autograd.profiler.profile` asks Kineto for the GPU, and so for CUPTI."""
    activities = getattr(session, "kineto_activities", ())
    return any(getattr(activity, "name", "") == "CUDA" for activity in activities)


def _named(text: str, warn: Callable[[str], None]) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names:  # set to nothing is not set
        names = frozenset(DEFAULT_LAYERS.split(","))
    if unknown := names - set(LAYERS) - {"0", "none"}:
        warn(
            f"PYMON_GPU_LAYERS: no layer {', '.join(sorted(unknown))} (known: {', '.join(LAYERS)})"
        )
    if "sync" in names:
        names |= {"cupti"}
    return names & set(LAYERS)

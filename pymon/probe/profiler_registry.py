"""Knows of every profiler session of this process, so that the user's own always wins.

A second torch profiler raises nothing, empties the first one's trace and can crash the process at
export, even when the first is only warming up, which none of torch's own flags shows. So the
sessions are seen where they all pass: `torch.autograd.profiler.profile._prepare_trace` and
`__exit__`, wrapped once at class level, and the two ranges-only profilers (`emit_nvtx`,
`emit_itt`), which torch refuses to start beside another one.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

# Class in torch.autograd.profiler, the method that opens a session, the one that ends it.
_DOORS = (
    ("profile", "_prepare_trace", "__exit__"),
    ("emit_nvtx", "__enter__", "__exit__"),
    ("emit_itt", "__enter__", "__exit__"),
)


class ProfilerRegistry:
    """Sessions that are open now, ours left out. One per process: `registry()`."""

    def __init__(self) -> None:
        self.why_not = "the probe has not been attached"
        self.on_user_session: Callable[[], None] | None = None
        # Every session, ours too: before it opens, and after its end.
        self.on_open: Callable[[Any], None] | None = None
        self.on_end: Callable[[Any], None] | None = None
        self._live: weakref.WeakSet[Any] = (
            weakref.WeakSet()
        )  # one that is dropped unended must not stay
        self._own = threading.local()
        self._installed = False

    def install(self) -> None:
        """Wraps the doors.

        Where a private name is missing nothing is wrapped and `why_not` says so.
        """
        if self._installed:
            return
        try:
            import torch
            from torch.autograd import profiler

            missing = [f"torch._C._autograd.{name}" for name in ("_profiler_enabled",)]
            missing = [
                path for path in missing if not hasattr(torch._C._autograd, path.split(".")[-1])
            ]
            for name, opens, ends in _DOORS:
                cls = getattr(profiler, name, None)
                missing += [f"{name}.{door}" for door in (opens, ends) if not hasattr(cls, door)]
            if not hasattr(torch.profiler, "_KinetoProfile"):
                missing.append("torch.profiler._KinetoProfile")
        except ImportError as err:
            self.why_not = f"torch's profiler cannot be imported: {err}"
            return
        if missing:
            self.why_not = f"this torch ({torch.__version__}) lacks {', '.join(missing)}"
            return
        for name, opens, ends in _DOORS:
            self._wrap(getattr(profiler, name), opens, ends)
        self._installed, self.why_not = True, ""

    def _wrap(self, cls: Any, opens: str, ends: str) -> None:
        original_open, original_end = getattr(cls, opens), getattr(cls, ends)

        @functools.wraps(original_open)
        def opening(session: Any, *args: Any, **kwargs: Any) -> Any:
            if not getattr(self._own, "depth", 0):
                self._announce(session)
            _tell(self.on_open, session)
            try:
                return original_open(session, *args, **kwargs)
            except BaseException:
                self._live.discard(session)
                _tell(self.on_end, session)
                raise

        @functools.wraps(original_end)
        def ending(session: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original_end(session, *args, **kwargs)
            finally:
                self._live.discard(session)
                _tell(self.on_end, session)

        setattr(cls, opens, opening)
        setattr(cls, ends, ending)

    def _announce(self, session: Any) -> None:
        if not getattr(session, "enabled", True):
            return  # a switched-off session opens nothing, and its end would not be seen
        self._live.add(session)
        if self.on_user_session is not None:
            with contextlib.suppress(Exception):  # the user's profiler starts, whatever ours does
                self.on_user_session()

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Sessions that this thread opens inside are pymon's own."""
        self._own.depth = getattr(self._own, "depth", 0) + 1
        try:
            yield
        finally:
            self._own.depth -= 1

    def user_session(self) -> str:
        """Why a capture must not start in this thread now.

        Empty where it may. Call it in the training thread.
        """
        if self.why_not:
            return self.why_not
        import torch

        if len(self._live):
            return "the job's own profiler is running"
        busy = torch._C._autograd._profiler_enabled() or getattr(
            torch.autograd.profiler, "_is_profiler_enabled", False
        )
        return "a profiler that was started before pymon is running" if busy else ""

    @property
    def user_is_active(self) -> bool:
        """Whether the user has a session open, in any thread, warm-up included."""
        return bool(len(self._live))


def _tell(listener: Callable[[Any], None] | None, session: Any) -> None:
    if listener is not None:
        with contextlib.suppress(Exception):  # the profiler runs, whatever ours does
            listener(session)


_REGISTRY = ProfilerRegistry()


def registry() -> ProfilerRegistry:
    """The one registry of this process."""
    return _REGISTRY

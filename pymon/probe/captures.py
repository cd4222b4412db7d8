"""Capture orders in the training process: one at a time, never at the expense of the training.

Two threads meet here. The sender thread brings orders (`accept`) and takes receipts away (`poll`);
the training thread does the work at its step boundaries (`on_step`), since torch's profiler must
start and stop in the thread that it records. Nothing but an interrupt leaves `on_step`: a failure
ends in a receipt.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from pymon.link.wire import CaptureOrder, CountersOrder, Receipt
from pymon.probe.counters import Counters
from pymon.probe.profiler_registry import ProfilerRegistry, registry

if TYPE_CHECKING:  # it comes with the first order: the start of the training shall not wait for it
    from pymon.probe.capture_run import CaptureRun

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
# A recording whose boundary is late may still end in a trace; the daemon waits this long beyond
# `max_s` and more.
LATE_S = 10.0
# The user's profiler, opened in another thread, waits at most this long for ours to stop at a
# boundary.
YIELD_S = 1.0
_EVALUATION = "an evaluation began within a step, and would have made the trace too large"
_YIELDED = "the job's own profiler started, and came first"


class Captures:
    """`native` is `pymon.native._probe` (None: captures are refused); `attach_id` its hex form.

    `layers` are the GPU layers, which stand back from CUPTI for a burst of counters.
    """

    def __init__(
        self,
        native: Any,
        attach_id: str,
        profilers: ProfilerRegistry | None = None,
        layers: Any = None,
    ) -> None:
        self._native, self._attach_id = native, attach_id
        self._registry = profilers or registry()
        self._registry.install()
        self._registry.on_user_session = self._yield_to_user
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._run: CaptureRun | None = None
        self._busy = False  # the training thread is inside `on_step`
        self._abandoned = False  # the receipt went out, the recording still has to be stopped
        self._cooling = False  # the step that paid for the export is flagged as profiled too
        self._yield: threading.Event | None = None
        self._overtaken = False
        self._receipts: list[Receipt] = []
        self._old: list[str] = []
        self._counters = Counters(native, self._registry, self._old.append, layers)
        self._ending = False
        atexit.register(self.close)

    @property
    def wants_steps(self) -> bool:
        """Whether step boundaries matter now."""
        return self._run is not None or self._cooling

    def accept(self, order: CaptureOrder | CountersOrder) -> Receipt | None:
        """Sender thread: takes the order (None), or refuses it at once."""
        folder = f"{order.capture_id}-{self._attach_id}"
        path = os.path.join(order.spool, folder)
        reason = self._refusal(order)
        if not reason:
            try:
                self._clear_old()
                os.mkdir(path, 0o750)
            except OSError as err:
                reason = f"the spool cannot be written from here ({err}); in a container, mount it"
        if not reason and isinstance(order, CountersOrder):
            reason = self._counters.begin(order, path)
            if reason:
                shutil.rmtree(path, ignore_errors=True)
        if reason:
            return Receipt(order.capture_id[:64], "refused", reason[:512])
        if isinstance(order, CountersOrder):
            return None
        from pymon.probe.capture_run import CaptureRun

        with self._lock:
            self._run = CaptureRun(
                order, folder, self._native, self._registry, self._end_at_evaluation
            )
            self._native.set_step_callback(self.on_step)
        return None

    def _refusal(self, order: CaptureOrder | CountersOrder) -> str:
        if self._native is None:
            return "pymon's native part is not built here"
        if self._registry.why_not:
            return self._registry.why_not
        if self._ending or sys.is_finalizing() or not threading.main_thread().is_alive():
            return "the process is ending"
        steps = order.steps if isinstance(order, CaptureOrder) else 1
        if not _ID.match(order.capture_id) or not os.path.isabs(order.spool) or steps < 1:
            return "the order is malformed"
        if busy := self._run.order.capture_id if self._run is not None else self._counters.busy:
            return f"capture {busy} is under way here"
        if self._registry.user_is_active:
            return "the job's own profiler is running"
        from pymon.probe.capture_run import no_room

        return no_room(order.spool, order.min_free_bytes, order.min_free_bytes)

    def on_step(self, step: int) -> None:
        """Training thread: step `step` has ended."""
        if os.getpid() != self._pid:
            return  # a forked child owns neither the profiler nor the order
        with self._lock:
            if self._busy:
                return  # another training thread is at it
            self._busy = True
        try:
            self._boundary(step)
        finally:
            self._busy = False

    def _boundary(self, step: int) -> None:
        if self._cooling:
            self._cooling = False
            self._native.set_capturing(False)
        with self._lock:  # `accept` must not set the callback between the look and the clearing
            run = self._run
            if run is None:
                self._native.set_step_callback(None)
                return
        receipt: Receipt | None = None
        try:
            receipt = self._late_stop(run) or (None if self._yield else run.boundary(step))
        except Exception as err:  # noqa: BLE001 - border to the user's training: ends in a receipt
            receipt = self._failed(run, err)
        except BaseException as err:  # Ctrl-C: the user's, goes on
            self._finish(run, self._failed(run, err))
            raise
        if receipt is not None:
            self._finish(run, receipt)

    def _late_stop(self, run: CaptureRun) -> Receipt | None:
        """A stop that had to wait for this boundary: abandoned by the sender, or asked for by the
        user's profiler.
        """
        if run.recording and run.thread != threading.get_ident():
            return None
        if self._yield is not None:
            if self._overtaken and self._registry.user_is_active:
                return None  # stopping now would empty the user's trace
            return self._give_up(run, _YIELDED)
        return self._give_up(run, "") if self._abandoned else None

    def _failed(self, run: CaptureRun, err: BaseException) -> Receipt:
        return self._give_up(run, f"{type(err).__name__}: {err}"[:512])

    def _give_up(self, run: CaptureRun, reason: str) -> Receipt:
        try:
            return run.give_up(reason)
        except Exception as err:  # noqa: BLE001 - it does not even stop: say so, touch it no more
            reason = f"{reason}; stopping it: {type(err).__name__}: {err}"
            return Receipt(run.order.capture_id, "failed", reason)

    def _finish(self, run: CaptureRun, receipt: Receipt) -> None:
        with self._lock:
            if not self._abandoned:
                self._receipts.append(receipt)
            if receipt.status == "written":
                self._old.append(run.path)
            self._run, self._abandoned, self._overtaken = None, False, False
            self._cooling = bool(run.thread)
            waiting, self._yield = self._yield, None
        if waiting is not None:
            waiting.set()

    def _yield_to_user(self) -> None:
        """The user's profiler is about to open, in this thread: ours makes room first."""
        if os.getpid() != self._pid:
            return  # a forked child may hold a copy of the lock that nobody will ever free
        self._counters.yield_to_user()
        with self._lock:
            run = self._run
            if run is None or not run.recording:
                return
            here = run.thread == threading.get_ident()
            waiting = self._yield = self._yield or threading.Event()
        if here:
            self._finish(run, self._give_up(run, _YIELDED))
        elif not waiting.wait(YIELD_S):
            self._overtaken = True

    def _end_at_evaluation(self) -> None:
        """The recording's own thread, at a fetch."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            run = self._run
            if run is None or self._busy or not run.recording:
                return
            self._busy = True
        try:
            self._finish(run, self._give_up(run, _EVALUATION))
        finally:
            self._busy = False

    def poll(self) -> list[Receipt]:
        """Sender thread: receipts that are due. An order whose boundary never came ends here."""
        counted = self._counters.poll()
        with self._lock:
            run = self._run
            if run is not None and not self._busy and not self._abandoned:
                over_s = time.monotonic() - run.deadline_s
                if over_s > (LATE_S if run.recording else 0):
                    self._overdue(run)
            due, self._receipts = self._receipts, []
        return due + counted

    def _overdue(self, run: CaptureRun) -> None:
        reason = f"no step boundary came within {run.order.max_s:.0f} s"
        if run.recording:
            reason += "; the profiler that was started ends at the next one"
            self._abandoned = True
        else:
            self._run, self._cooling = None, bool(run.thread)
            shutil.rmtree(run.path, ignore_errors=True)
        self._receipts.append(Receipt(run.order.capture_id, "failed", reason))

    def _clear_old(self) -> None:
        """What the daemon was not allowed to remove.

        It has long been read when the next order comes.
        """
        while self._old:
            shutil.rmtree(self._old.pop(), ignore_errors=True)

    def close(self) -> None:
        """At exit: a profiler left running can crash the interpreter's end.

        Only its own thread may stop it.
        """
        self._ending = True
        run = self._run
        if os.getpid() != self._pid:
            return
        self._counters.close()
        if run is None:
            return
        if not run.recording or run.thread == threading.get_ident():
            self._finish(run, self._give_up(run, "the process ended"))

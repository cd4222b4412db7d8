"""One capture order, carried out at the step boundaries of the training thread.

First one step is recorded only to be counted: a trace is bounded by its events (stopping costs
about 8 µs, and memory 1.2 kB, for each), and nothing tells their number while a recording runs.
One step is left out, and then come the steps that are kept.

The step in between is there because a boundary lies inside torch's own `Optimizer.step` range: a
range that one recording opened and that ends under the next one writes into freed memory.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

from pymon.link.wire import CaptureOrder, Receipt
from pymon.probe.call_sites import CallSites
from pymon.probe.fetch_watch import FetchWatch
from pymon.probe.profiler_registry import ProfilerRegistry
from pymon.probe.room import available_memory_bytes, free_disk_bytes
from pymon.probe.torch_session import TorchSession, gpu_in_use

# Measured with torch 2.13 on a CPU over 3.9 k to 577 k events (docs/captures.md), rounded up.
EVENT_DISK_BYTES = 300
EVENT_MEMORY_BYTES = 1300
# An operator that launches a kernel adds the launch and the kernel to the operator that sizing
# counts.
GPU_EVENTS_PER_OPERATOR = 3
# Forward, backward and optimizer of the smallest model measured (8 layers): more batches than this
# allows have more events than the order does.
BATCH_EVENTS = 780
# Boundaries between the one that starts the sizing and the first step that is kept.
STEPS_BEFORE = 3


class CaptureRun:
    """`boundary` and `give_up` belong to the training thread.

    Neither is called again once a receipt was given.
    """

    def __init__(
        self,
        order: CaptureOrder,
        folder: str,
        native: Any,
        registry: ProfilerRegistry,
        on_evaluation: Callable[[], None],
    ) -> None:
        self.order = order
        self.deadline_s = time.monotonic() + order.max_s
        self.thread = 0  # of the recording, 0 before it
        self._began_s = time.monotonic()
        self._folder = folder  # name below the spool; made by the caller
        self._native, self._registry = native, registry
        self._sites = CallSites(native)
        self._watch = FetchWatch(on_evaluation)
        self._session: TorchSession | None = None
        self._sizing = self._sized = False
        self._with_gpu = False
        self._step_began_s = self._window_began_s = 0.0
        self._first, self._steps, self._done = 0, 0, 0
        self._batches_max = max(1, order.max_events // BATCH_EVENTS)  # of one step

    @property
    def recording(self) -> bool:
        """Whether torch's profiler runs for this order now."""
        return self._session is not None

    @property
    def path(self) -> str:
        """The order's folder in the spool."""
        return os.path.join(self.order.spool, self._folder)

    def boundary(self, step: int) -> Receipt | None:
        """Step `step` has ended in this thread; a receipt when the order has."""
        if self._session is None:
            return self._begin_keeping(step) if self._sized else self._start(step)
        if self.thread != threading.get_ident():
            return None  # two threads train; the other one is being recorded
        return self._keep(step) if self._sizing is False else self._size(step)

    def give_up(self, reason: str, status: str = "failed") -> Receipt:
        """Ends without a trace.

        A recording is stopped and never exported: the export of a lost one crashes.
        """
        session, self._session = self._session, None
        self._sites.stop()
        self._watch.stop()
        try:
            if session is not None:
                session.stop()
        finally:
            shutil.rmtree(self.path, ignore_errors=True)
        return self._receipt(status, reason)

    def _start(self, step: int) -> Receipt | None:
        first = self.order.first_step
        if first and step < first - STEPS_BEFORE:
            return None
        if first and step > first - STEPS_BEFORE:
            return self.give_up(f"step {first} was ordered, and step {step} is over", "missed")
        if busy := self._registry.user_session():
            return self.give_up(busy, "refused")
        self.thread = threading.get_ident()
        self._sizing = True
        self._native.set_capturing(True)
        self._record(step + 1, with_gpu=False)
        return None

    def _record(self, step: int, with_gpu: bool) -> None:
        session = TorchSession(self._registry, with_gpu, self.order.with_stack)
        self._watch.start(self._batches_max)
        session.start()
        self._session = session
        session.begin_step(step)
        self._step_began_s = time.monotonic()

    def _size(self, step: int) -> Receipt | None:
        """The sizing step is over: how many steps may be kept?"""
        assert self._session is not None
        step_s = time.monotonic() - self._step_began_s
        session, self._session = self._session, None
        # Twice what this step took, and two that are fetched ahead: more belong to an evaluation.
        self._batches_max = 2 * self._watch.stop() + 2
        session.stop()
        with_gpu = gpu_in_use()
        events = max(1, session.events()) * (GPU_EVENTS_PER_OPERATOR if with_gpu else 1)
        left_s = self.deadline_s - time.monotonic()
        steps = min(self.order.steps, self.order.max_events // events)
        if steps < 1:
            return self.give_up(
                f"one step makes {events:,} events, {self.order.max_events:,} at most"
            )
        if left_s <= 0:
            return self.give_up(f"no time was left after a step of {step_s:.1f} s")
        self._steps = max(1, min(steps, int(left_s / max(step_s, 1e-6))))
        if reason := self._no_room(events * self._steps) or self._registry.user_session():
            return self.give_up(reason, "refused")
        self._sizing, self._sized, self._with_gpu = False, True, with_gpu
        return None

    def _begin_keeping(self, step: int) -> Receipt | None:
        if self.thread != threading.get_ident():
            return None
        if busy := self._registry.user_session():
            return self.give_up(busy, "refused")
        self._first = step + 1
        self._sites.start()
        self._record(step + 1, self._with_gpu)
        self._window_began_s = self._step_began_s
        return None

    def _no_room(self, events: int) -> str:
        return no_room(
            self.order.spool,
            self.order.min_free_bytes + events * EVENT_DISK_BYTES,
            self.order.min_free_bytes + events * EVENT_MEMORY_BYTES,
        )

    def _keep(self, step: int) -> Receipt | None:
        assert self._session is not None
        self._done += 1
        if self._done < self._steps and time.monotonic() < self.deadline_s:
            self._session.begin_step(step + 1)
            self._watch.begin_step()
            return None
        session, self._session = self._session, None
        window_s = time.monotonic() - self._window_began_s
        self._sites.stop()
        self._watch.stop()
        session.stop()
        if reason := self._no_room(session.events()):
            return self.give_up(reason)
        return self._export(session, window_s)

    def _export(self, session: TorchSession, window_s: float) -> Receipt:
        try:
            session.export(os.path.join(self.path, "trace.json"))
            with open(os.path.join(self.path, "call_sites.json"), "x", encoding="utf-8") as file:
                json.dump(self._sites.document(self._done, window_s), file)
        except OSError as err:
            return self.give_up(f"the trace could not be written: {err}")
        return self._receipt("written", self._shortened(), ["trace.json", "call_sites.json"])

    def _shortened(self) -> str:
        if self._done >= self.order.steps:
            return ""
        return f"{self._done} of {self.order.steps} steps, to stay within events and seconds"

    def _receipt(self, status: str, reason: str, files: list[str] | None = None) -> Receipt:
        return Receipt(
            capture_id=self.order.capture_id,
            status=status,
            reason=reason,
            folder=self._folder if files else "",
            files=files or [],
            first_step=self._first,
            steps=self._done,
            took_s=time.monotonic() - self._began_s,
        )


def no_room(spool: str, disk_bytes: int, memory_bytes: int) -> str:
    """Why there is not that much free disk and memory.

    Empty where there is (or memory cannot be read).
    """
    try:
        free = free_disk_bytes(spool)
    except OSError as err:
        return f"the spool cannot be read: {err}"
    if free < disk_bytes:
        return f"{free >> 20} MiB of disk are free in the spool, {disk_bytes >> 20} MiB must be"
    memory = available_memory_bytes()
    if memory is not None and memory < memory_bytes:
        return f"{memory >> 20} MiB of memory are available, {memory_bytes >> 20} MiB must be"
    return ""

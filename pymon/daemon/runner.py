"""Runs collectors: the one place where any trouble of a part ends, and becomes an outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.collectors import QUICK, Collector
from pymon.model.snapshot import Outcome, State

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")
_TOLD_MAX = 100
_LOOP_S = 0.001  # a loop's timer may come early by the resolution of its clock
_told: set[str] = set()


def run_once(collector: Collector) -> Outcome:
    """Runs a collector; never raises."""
    began_s = time.monotonic()
    state, section, reason = State.OK, None, ""
    try:
        section = collector.collect()
    except SourceAbsent as err:
        state, reason = State.ABSENT, str(err)
    except SourceFailed as err:
        state, reason = State.FAILED, str(err)
    except Exception as err:  # noqa: BLE001 - a collector's bug ends here and costs its own section only
        state, reason = State.FAILED, f"{type(err).__name__}: {err}"
        log.warning("collector %s failed: %s", collector.name, reason)
    return Outcome(collector.name, state, time.monotonic() - began_s, section, reason)


def guarded(what: str, work: Callable[[], ResultT], instead: ResultT) -> ResultT:
    """The work's result; `instead` where it has a bug, which is told once and ends here."""
    try:
        return work()
    except Exception as err:  # a bug of a detector or a rule costs its own findings only
        reason = f"{what}: {type(err).__name__}: {err}"
        if reason not in _told and len(_told) < _TOLD_MAX:
            _told.add(reason)
            log.error("%s", reason, exc_info=True)
        return instead


class _Lane:
    """A daemon thread for a collector, or for the quick ones: one that hangs holds up no other lane, nor the end."""

    def __init__(self, name: str) -> None:
        self.is_done = True
        self._orders: SimpleQueue[tuple[list[Collector], Callable[[], None]]] = SimpleQueue()
        self._outcomes: dict[str, Outcome] = {}  # not taken yet
        self._running: list[Collector] = []
        self._began_s = 0.0
        threading.Thread(target=self._work, name=f"pymon-{name}", daemon=True).start()

    def start(self, due: Sequence[Collector], done: Callable[[], None]) -> bool:
        """Begins a run, unless the one before is still at it; not of those whose late outcome was not taken yet.

        `done` is called on the lane's thread at its end.
        """
        running = [c for c in due if c.name not in self._outcomes]
        if not self.is_done or not running:
            return False
        self.is_done, self._running, self._began_s = False, running, time.monotonic()
        self._orders.put((running, done))
        return True

    def is_late(self) -> bool:
        """Whether whatever has not ended yet is past its time."""
        took_s = time.monotonic() - self._began_s
        return all(took_s >= c.timeout_s for c in self._running if c.name not in self._outcomes)

    def take(self, collector: Collector) -> Outcome:
        """The run's outcome, or LATE; a late one comes with the next tick, since its steps are told only once."""
        if (outcome := self._outcomes.pop(collector.name, None)) is not None:
            return outcome
        took_s = time.monotonic() - self._began_s
        reason = f"no answer after {took_s:.1f} s; not started again until it ends"
        return Outcome(collector.name, State.LATE, took_s, None, reason)

    def _work(self) -> None:
        while True:
            running, done = self._orders.get()
            for collector in running:
                self._outcomes[collector.name] = run_once(collector)
            self.is_done = True
            done()


class _Round:
    """The lanes of one tick that are waited for. A lane ends on its own thread, which wakes the loop with the last."""

    def __init__(self, lanes: Iterable[_Lane], budget_s: float) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._left = set(lanes)
        self._lock = threading.Lock()
        self._timers = [self._loop.call_later(budget_s, self._over.set)]

    def start(self, lane: _Lane, due: Sequence[Collector]) -> None:
        if not lane.start(due, partial(self._done, lane)):
            self._give_up(lane)
            return
        for limit_s in {collector.timeout_s for collector in due}:
            self._timers.append(self._loop.call_later(limit_s + _LOOP_S, self._look, lane))

    async def wait(self) -> None:
        await self._over.wait()
        for timer in self._timers:
            timer.cancel()

    def _look(self, lane: _Lane) -> None:
        if lane.is_late():
            self._give_up(lane)

    def _give_up(self, lane: _Lane) -> None:
        if self._is_last(lane):
            self._over.set()

    def _done(self, lane: _Lane) -> None:
        if self._is_last(lane):
            with contextlib.suppress(RuntimeError):  # the loop has ended before the lane
                self._loop.call_soon_threadsafe(self._over.set)

    def _is_last(self, lane: _Lane) -> bool:
        with self._lock:
            self._left.discard(lane)
            return not self._left


@dataclass(slots=True)
class Runner:
    """All collectors of a tick, side by side. `budget_s` bounds the wait for all of them."""

    collectors: Sequence[Collector]
    budget_s: float = 0.9  # of a tick of one second
    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _last: dict[str, tuple[float, Outcome]] = field(default_factory=dict)

    async def tick(self, everything: bool = False) -> tuple[Outcome, ...]:
        """Runs what is due, or all; takes `budget_s` at most. A part that is not due gives what it gave last."""
        now_s = time.monotonic()
        lanes: dict[str, list[Collector]] = {}
        for collector in self.collectors:
            if everything or self._is_due(collector, now_s):
                name = "quick" if collector.name in QUICK else collector.name
                lanes.setdefault(name, []).append(collector)
        for name in lanes:
            if name not in self._lanes:
                self._lanes[name] = _Lane(name)
        if lanes:
            around = _Round((self._lanes[name] for name in lanes), self.budget_s)
            for name, due in lanes.items():
                around.start(self._lanes[name], due)
            await around.wait()
        for name, due in lanes.items():
            for collector in due:
                self._last[collector.name] = (now_s, self._lanes[name].take(collector))
        return tuple(self._last[c.name][1] for c in self.collectors)

    def _is_due(self, collector: Collector, now_s: float) -> bool:
        last = self._last.get(collector.name)
        if last is not None and last[1].state is State.LATE:
            return True  # what it brings comes with the next tick, not an interval later
        # Half a tick of slack: ticks are never exactly apart.
        return last is None or now_s - last[0] >= collector.interval_s - 0.5

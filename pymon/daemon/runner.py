"""Runs collectors: the one place where any trouble of a part ends, and becomes an outcome."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.collectors import QUICK, Collector
from pymon.model.snapshot import Outcome, State

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")
_TOLD_MAX = 100
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
        self._go, self._news = threading.Event(), threading.Condition()
        self._is_done = True
        self._running: list[Collector] = []
        self._outcomes: dict[str, Outcome] = {}  # not taken yet
        self._began_s = 0.0
        threading.Thread(target=self._work, name=f"pymon-{name}", daemon=True).start()

    def start(self, due: Sequence[Collector]) -> None:
        """Begins a run, unless the one before is still at it; not of those whose late outcome was not taken yet."""
        if self._is_done:
            self._running = [c for c in due if c.name not in self._outcomes]
            self._began_s = time.monotonic()
            if self._running:
                self._is_done = False
                self._go.set()

    def result(self, collector: Collector, deadline_s: float) -> Outcome:
        """The run's outcome, or LATE; a late one comes with the next tick, since its steps are told only once."""
        limit_s = min(deadline_s, self._began_s + collector.timeout_s)
        with self._news:
            self._news.wait_for(
                lambda: self._is_done or collector.name in self._outcomes,
                max(0.0, limit_s - time.monotonic()),
            )
            if (outcome := self._outcomes.pop(collector.name, None)) is not None:
                return outcome
        took_s = time.monotonic() - self._began_s
        reason = f"no answer after {took_s:.1f} s; not started again until it ends"
        return Outcome(collector.name, State.LATE, took_s, None, reason)

    def _work(self) -> None:
        while True:
            self._go.wait()
            self._go.clear()
            for collector in self._running:
                outcome = run_once(collector)
                with self._news:
                    self._outcomes[collector.name] = outcome
                    self._news.notify_all()
            with self._news:
                self._is_done = True
                self._news.notify_all()


@dataclass(slots=True)
class Runner:
    """All collectors of a tick, side by side. `budget_s` bounds the wait for all of them."""

    collectors: Sequence[Collector]
    budget_s: float = 0.9  # of a tick of one second
    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _last: dict[str, tuple[float, Outcome]] = field(default_factory=dict)

    def tick(self, everything: bool = False) -> tuple[Outcome, ...]:
        """Runs what is due, or all; blocks for `budget_s` at most. A part that is not due gives what it gave last."""
        now_s = time.monotonic()
        lanes: dict[str, list[Collector]] = {}
        for collector in self.collectors:
            if everything or self._is_due(collector, now_s):
                name = "quick" if collector.name in QUICK else collector.name
                lanes.setdefault(name, []).append(collector)
        for name, due in lanes.items():
            if name not in self._lanes:
                self._lanes[name] = _Lane(name)
            self._lanes[name].start(due)
        for name, due in lanes.items():
            for collector in due:
                outcome = self._lanes[name].result(collector, now_s + self.budget_s)
                self._last[collector.name] = (now_s, outcome)
        return tuple(replace(self._last[c.name][1]) for c in self.collectors)

    def _is_due(self, collector: Collector, now_s: float) -> bool:
        last = self._last.get(collector.name)
        if last is not None and last[1].state is State.LATE:
            return True  # what it brings comes with the next tick, not an interval later
        # Half a tick of slack: ticks are never exactly apart.
        return last is None or now_s - last[0] >= collector.interval_s - 0.5

"""Runs collectors: the one place where any trouble of a part ends, and becomes an outcome."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.collectors import Collector
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


class _Slot:
    """One collector on its own daemon thread, so that a hung one holds up nobody, the daemon's end included."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._go, self._done = threading.Event(), threading.Event()
        self._done.set()
        self._outcome: Outcome | None = None
        self._late = False  # the outcome of a run that missed its tick waits for the next one
        self._began_s = 0.0
        name = f"pymon-{collector.name}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def start(self) -> None:
        """Begins a run, unless the one before is still at it, or what it brought has not been taken yet."""
        if self._done.is_set() and not self._late:
            self._done.clear()
            self._began_s = time.monotonic()
            self._go.set()

    def result(self, deadline_s: float) -> Outcome:
        """The run's outcome, or LATE; a late one comes with the next tick, since its steps are told only once."""
        limit_s = min(deadline_s, self._began_s + self.collector.timeout_s)
        if self._done.wait(max(0.0, limit_s - time.monotonic())) and self._outcome is not None:
            self._late = False
            return self._outcome
        self._late = True
        took_s = time.monotonic() - self._began_s
        reason = f"no answer after {took_s:.1f} s; not started again until it ends"
        return Outcome(self.collector.name, State.LATE, took_s, None, reason)

    def _work(self) -> None:
        while True:
            self._go.wait()
            self._go.clear()
            self._outcome = run_once(self.collector)
            self._done.set()


@dataclass(slots=True)
class Runner:
    """All collectors of a tick, side by side. `budget_s` bounds the wait for all of them."""

    collectors: Sequence[Collector]
    budget_s: float = 0.9  # of a tick of one second
    _slots: dict[str, _Slot] = field(default_factory=dict)
    _last: dict[str, tuple[float, Outcome]] = field(default_factory=dict)

    def tick(self, everything: bool = False) -> tuple[Outcome, ...]:
        """Runs what is due, or all; blocks for `budget_s` at most. A part that is not due gives what it gave last."""
        now_s = time.monotonic()
        due = [c for c in self.collectors if everything or self._is_due(c, now_s)]
        for collector in due:
            if collector.name not in self._slots:
                self._slots[collector.name] = _Slot(collector)
            self._slots[collector.name].start()
        for collector in due:
            outcome = self._slots[collector.name].result(now_s + self.budget_s)
            self._last[collector.name] = (now_s, outcome)
        return tuple(replace(self._last[c.name][1]) for c in self.collectors)

    def _is_due(self, collector: Collector, now_s: float) -> bool:
        last = self._last.get(collector.name)
        if last is not None and last[1].state is State.LATE:
            return True  # what it brings comes with the next tick, not an interval later
        # Half a tick of slack: ticks are never exactly apart.
        return last is None or now_s - last[0] >= collector.interval_s - 0.5

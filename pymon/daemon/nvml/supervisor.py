"""Keeps one worker at the driver: asks it for a sweep a tick, gives it up when a call hangs, brings the next one.

All runs on the collector's thread, within the tick's budget; nothing here waits for a process to end.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass, field, replace
from typing import Final

from pymon.daemon.nvml.backoff import EVENTS, Backoff, Skips
from pymon.daemon.nvml.child import Child, ChildEnded, Kill, kill_now
from pymon.daemon.nvml.known import KnownGpus
from pymon.daemon.nvml.marks import Marks
from pymon.daemon.nvml.roster import Roster
from pymon.daemon.nvml.settings import NvmlSettings
from pymon.model.gpu import Driver, DriverState, GpuSection
from pymon.sources.nvml import wire
from pymon.sources.nvml.announce import NO_GPU, Announcement

log = logging.getLogger(__name__)

BUDGET_S: Final = 0.8  # of the tick's second, and below the runner's 0.9
# Alive at once, those given up included: each keeps some 15 MB, and its call in the driver.
WORKERS_MAX: Final = 4
SILENT_S: Final = 10.0  # a worker that is in no call and says nothing: stopped, or out of memory
# Times the timeout that a worker may be runnable: it may spin in the library all the same.
STARVED: Final = 5
START_S, START_MAX_S = 1.0, 60.0  # a driver that is away is looked for again
# A node without GPUs: a new process each second would cost it more than all else; `marks` sees a driver that comes.
NO_LIBRARY_S, NO_LIBRARY_MAX_S = 60.0, 600.0
STUCK_S: Final = 5.0  # a worker that ends later than this after SIGKILL was held by the driver
# Beside the timeout: what a healthy GPU may wait for a worker that hangs, before it told of the sweep and for the next.
WAIT_S: Final = 3.0
_EVENT_CALLS: Final = (
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait",
    "nvmlEventSetFree",
)
_STATES: Final = {
    4: DriverState.NO_PERMISSION,
    9: DriverState.NO_DRIVER,
    12: DriverState.NO_LIBRARY,
    18: DriverState.VERSION_MISMATCH,
}


@dataclass(slots=True)
class Supervisor:
    """`read` gives the section of a tick; `release`, `kill_workers` and `close` may be called from another thread."""

    settings: NvmlSettings = field(default_factory=NvmlSettings)
    marks: Marks = field(default_factory=Marks)
    kill: Kill = kill_now
    known: KnownGpus = field(default_factory=KnownGpus)
    roster: Roster = field(init=False)
    _child: Child | None = None
    _stuck: list[Child] = field(default_factory=list)
    _ready: bool = False
    _busy: bool = False
    _heard_s: float = 0.0
    _skips: Skips = field(default_factory=Skips)
    _order: wire.Sweep = field(default_factory=wire.Sweep)
    _start: Backoff = field(default_factory=lambda: Backoff(START_S, START_MAX_S))
    _released_until_s: float = 0.0
    _closed: bool = False

    def __post_init__(self) -> None:
        fresh_s = self.settings.call_timeout_s + WAIT_S
        self.roster = Roster(fresh_s, 2.5 * self.settings.slow_s)
        self.roster.driver = Driver(DriverState.STARTING, double=bool(self.settings.library))
        self.roster.expect(self.known.load())

    def read(self) -> GpuSection:
        """Sweeps once, or goes on with the sweep under way; takes BUDGET_S at most."""
        now_s = time.monotonic()
        end_s = now_s + BUDGET_S
        self._bury(now_s)
        if self._released_until_s > now_s:
            self._let_go()
        elif self.marks.changed(now_s):
            self._renew("the driver's GPUs have changed")
        asked: Child | None = None
        while not self._closed and self._has_child(now_s) and now_s < end_s:
            if self._ready and not self._busy:
                if asked is self._child:
                    break
                asked = self._ask(now_s)
            self._listen(now_s, end_s)
            now_s = time.monotonic()
        self.known.keep(self.roster.known())
        return self.roster.section(now_s)

    def release(self, for_s: float) -> None:
        """Lets go of the driver, and takes it again after that time or at `release(0)`."""
        self._released_until_s = time.monotonic() + for_s
        self._start = Backoff(START_S, START_MAX_S)

    @property
    def holds_driver(self) -> bool:
        """Whether a worker lives that may hold the driver's files."""
        return self._child is not None or any(not child.is_gone() for child in self._stuck)

    def close(self) -> None:
        """Kills all workers, and starts no other; waits for none."""
        self._closed = True
        self.kill_workers()

    def kill_workers(self) -> None:
        """Kills all there are, so that the driver is free until the next `read`."""
        for child in [*self._stuck, *([self._child] if self._child else [])]:
            self.kill(child.process.pid)

    def _has_child(self, now_s: float) -> bool:
        if self._child is None and now_s >= max(self._start.at_s, self._released_until_s):
            self._start_child(now_s)
        return self._child is not None

    def _start_child(self, now_s: float) -> None:
        if len(self._stuck) >= WORKERS_MAX:
            self._away(
                DriverState.HUNG, f"{len(self._stuck)} workers are stuck in the driver", now_s
            )
            return
        try:
            self._child = Child.start(self.settings.library)
        except OSError as err:
            self._away(DriverState.FAILED, f"no worker can be started: {err.strerror}", now_s)
            return
        self.roster.workers_total += 1
        self._ready = self._busy = False
        self._heard_s = now_s

    def _ask(self, now_s: float) -> Child:
        child = self._child
        assert child is not None
        held = {one.stuck_at for one in self._stuck if one.stuck_at is not None}
        skip = self._skips.now(now_s, held, spare=len(self._stuck) < WORKERS_MAX - 1)
        self._order = wire.Sweep(
            skip=tuple(sorted(index for index in skip if index >= 0)),
            events=EVENTS not in skip,
            per_link=self.settings.per_link,
            process_utilization=self.settings.process_utilization,
            slow_s=self.settings.slow_s,
        )
        self.roster.restart_sweep()
        with contextlib.suppress(ChildEnded):  # `_listen` sees its end
            child.send(self._order)
            self._busy, self._heard_s = True, now_s
        return child

    def _listen(self, now_s: float, end_s: float) -> None:
        child = self._child
        assert child is not None
        calling = child.calling()
        deadline_s = self._deadline_s(calling)
        try:
            message = child.receive(min(end_s, max(deadline_s, now_s), now_s + 0.1) - now_s)
        except ChildEnded:
            self._ended(child, time.monotonic())
            return
        if message is not None:
            self._heard_s = time.monotonic()
            self._note(message, self._heard_s)
        elif calling is not None and time.monotonic() >= deadline_s:
            if child.calling() == calling and not self._is_starved(child, deadline_s):
                self._hung(calling, time.monotonic())
        elif calling is None and time.monotonic() >= deadline_s:
            log.warning("NVML: a worker was silent for %g s", SILENT_S)
            self._give_up()

    def _deadline_s(self, calling: Announcement | None) -> float:
        if calling is None:
            # A new one may still be loading Python, which a short timeout of calls must not end.
            starting_s = max(SILENT_S, self.settings.init_timeout_s)
            return self._heard_s + (SILENT_S if self._ready else starting_s)
        limit_s = self.settings.call_timeout_s if self._ready else self.settings.init_timeout_s
        return calling.began_mono_ns / 1e9 + limit_s

    def _is_starved(self, child: Child, deadline_s: float) -> bool:
        """A worker of a throttled or crowded daemon is runnable, not in the driver; but not for ever."""
        patience_s = STARVED * self.settings.call_timeout_s
        return child.is_runnable() and time.monotonic() < deadline_s + patience_s

    def _note(self, message: wire.Message, now_s: float) -> None:
        if isinstance(message, wire.Ready):
            self._is_ready(message)
        elif isinstance(message, wire.Reads):
            real_s = time.time()
            for read in message.gpus:
                self.roster.note(read, now_s, real_s)
                if read.index not in self._order.skip:
                    self._skips.discard(read.index)
        elif isinstance(message, wire.Done):
            self._busy = False
            self.roster.done(message, self._order.skip, time.time())
            if self._order.events:
                self._skips.discard(EVENTS)
            driver = self.roster.driver
            if driver.watches_xids != message.watches_xids:
                self.roster.driver = replace(driver, watches_xids=message.watches_xids)
        else:
            self._is_away(message, now_s)

    def _is_ready(self, ready: wire.Ready) -> None:
        self._ready = True
        self._start = Backoff(START_S, START_MAX_S)
        self.roster.driver = Driver(
            DriverState.OK,
            "",
            ready.driver_version,
            ready.nvml_version,
            ready.cuda_version,
            ready.double,
        )

    def _is_away(self, away: wire.Away, now_s: float) -> None:
        self._give_up()
        if away.code == 0:  # the number of GPUs has changed
            self._skips.clear()
            return
        self.roster.count_error(away.function, away.code)
        state = _STATES.get(away.code, DriverState.FAILED)
        reason = f"{away.function}: {away.text} ({away.code})"
        if self.roster.driver.state is not state:
            usual = state is DriverState.NO_LIBRARY  # a node without GPUs
            log.log(logging.INFO if usual else logging.WARNING, "NVML: %s", reason)
        self._skips.clear()
        if state is DriverState.NO_LIBRARY:
            self._start.first_s, self._start.most_s = NO_LIBRARY_S, NO_LIBRARY_MAX_S
        self._away(state, reason, now_s)

    def _ended(self, child: Child, now_s: float) -> None:
        """It died by itself: in a call, then that GPU is left alone for a while; or between calls."""
        calling, was_idle = child.calling(), self._ready and not self._busy
        how = child.how_it_ended()
        self._give_up()
        if was_idle:
            return  # nobody asked it for long
        reason = f"the worker was {how}" + (f" in {calling.function}" if calling else "")
        log.warning("NVML: %s", reason)
        if calling is not None and calling.gpu != NO_GPU:
            self._skips.add(calling.gpu, now_s)
            self.roster.crashed(calling.gpu, reason)
        else:
            self._away(DriverState.FAILED, reason, now_s)

    def _hung(self, calling: Announcement, now_s: float) -> None:
        log.warning("NVML: %s does not return (GPU %s)", calling.function, calling.gpu)
        if calling.function in _EVENT_CALLS:
            self._give_up(stuck_at=EVENTS)
            self.roster.count_hang(calling.function)
            self._skips.add(EVENTS, now_s)
        elif calling.gpu != NO_GPU:
            self._give_up(stuck_at=calling.gpu)
            self.roster.hung(calling.gpu, calling.function)
            self._skips.add(calling.gpu, now_s)
        else:
            self._give_up()
            self.roster.count_hang(calling.function)
            self._start.wait_s = max(self._start.wait_s, self.settings.init_timeout_s / 2)
            self._away(DriverState.HUNG, f"{calling.function} does not return", now_s)

    def _away(self, state: DriverState, reason: str, now_s: float) -> None:
        self._start.failed(now_s)
        before = self.roster.driver
        self.roster.away(_with_state(before, state, reason))

    def _let_go(self) -> None:
        if self._child is not None:
            self._give_up()
        self.roster.away(_with_state(self.roster.driver, DriverState.RELEASED, "let go on request"))

    def _renew(self, reason: str) -> None:
        if self._child is not None:
            log.info("NVML: %s: a new worker", reason)
            self._give_up()
        self._skips.clear()
        self._start = Backoff(START_S, START_MAX_S)

    def _give_up(self, stuck_at: int | None = None) -> None:
        """Also one that has said its last: the kernel may take a moment more."""
        child, self._child = self._child, None
        if child is not None:
            child.give_up(self.kill, stuck_at)
            self._stuck.append(child)
            self.roster.workers_stuck = len(self._stuck)

    def _bury(self, now_s: float) -> None:
        """A worker that was stuck for long and has ended: the driver moves again, so all is tried at once."""
        for child in [child for child in self._stuck if child.is_gone()]:
            self._stuck.remove(child)
            child.page.close()
            stuck_s = now_s - (child.given_up_s or now_s)
            if stuck_s > STUCK_S:
                self._skips.try_all(now_s)
                self._start.at_s = now_s
        self.roster.workers_stuck = len(self._stuck)


def _with_state(driver: Driver, state: DriverState, reason: str) -> Driver:
    """The versions of a driver that is away may be others when it comes back."""
    return Driver(state, reason, double=driver.double)

"""Every GPU seen since the daemon began: its state, the newest of its readings, and what has been counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from pymon.daemon.nvml.known import Known
from pymon.model.gpu import (
    Driver,
    DriverState,
    FastReadings,
    Gpu,
    GpuIdentity,
    GpuSection,
    GpuState,
    NvmlCost,
    SlowReadings,
    XidCount,
)
from pymon.sources.nvml import plausible, wire

XID_KINDS_MAX: Final = 64  # codes of one GPU; NVIDIA lists fewer than 200 in all
XID_OTHER: Final = 999  # nvml.h: "999 for unknown Xid"; also those beyond the bound


@dataclass(slots=True)
class _Entry:
    index: int
    uuid: str
    state: GpuState = GpuState.UNKNOWN
    reason: str = ""
    identity: GpuIdentity | None = None
    fast: FastReadings | None = None
    fast_s: float = 0.0
    slow: SlowReadings | None = None
    slow_s: float = 0.0
    read_real_s: float | None = None
    xids: dict[int, XidCount] = field(default_factory=dict)
    invalid: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(plausible.REASONS, 0))
    )


@dataclass(slots=True)
class Roster:
    """`fresh_s` and `slow_fresh_s`: how old a reading may be and still stand for now."""

    fresh_s: float
    slow_fresh_s: float
    driver: Driver = field(default_factory=lambda: Driver(DriverState.STARTING))
    workers_total: int = 0
    workers_stuck: int = 0
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)  # in the sweep under way
    _spent_ns: int = 0
    _calls: int = 0
    _errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    _hangs: Counter[str] = field(default_factory=Counter)

    def note(self, read: wire.GpuRead, now_s: float, real_s: float) -> None:
        """Takes what a worker read of one GPU."""
        entry = self._entry(read.index, read.uuid)
        self._seen.add(_key(entry))
        entry.state, entry.reason = read.state, read.reason
        if read.identity is not None:
            entry.identity = read.identity
        if read.fast is not None:
            entry.fast, entry.fast_s, entry.read_real_s = read.fast, now_s, real_s
        if read.slow is not None:
            entry.slow, entry.slow_s = read.slow, now_s
        entry.invalid.update(read.invalid)

    def done(self, done: wire.Done, skipped: tuple[int, ...], real_s: float) -> None:
        """The end of a sweep: what it did not list is removed."""
        for key, entry in self._entries.items():
            if key not in self._seen and entry.index not in skipped:
                self._forget_readings(
                    entry, GpuState.REMOVED, "the driver does not list it any more"
                )
        self._seen.clear()
        self._spent_ns += done.spent_ns
        self._calls += done.calls
        for function, code, count in done.errors:
            self._errors[function, str(code)] += count
        for xid in done.xids:
            self._count_xid(xid, real_s)

    def hung(self, index: int, function: str) -> None:
        """A call about this GPU does not return."""
        self.count_hang(function)
        reason = f"{function} does not return"
        self._forget_readings(self._entry(index, ""), GpuState.HUNG, reason)

    def crashed(self, index: int, reason: str) -> None:
        """A call about this GPU ended the worker."""
        self._forget_readings(self._entry(index, ""), GpuState.UNKNOWN, reason)

    def count_hang(self, function: str) -> None:
        """A call that does not return."""
        self._hangs[function] += 1

    def count_error(self, function: str, code: int) -> None:
        """An error that ended a worker, and that it could not count itself."""
        self._errors[function, str(code)] += 1

    def away(self, driver: Driver) -> None:
        """Nothing can be asked now: all GPUs that were not worse off are unknown."""
        self.driver = driver
        for entry in self._entries.values():
            if entry.state is not GpuState.REMOVED:
                self._forget_readings(entry, GpuState.UNKNOWN, driver.reason)

    def expect(self, known: Known) -> None:
        """GPUs that an earlier daemon saw: `unknown` until the driver is asked, then `removed` unless it lists them."""
        for index, uuid in known:
            self._entries[uuid] = _Entry(index, uuid, reason="not read yet")

    def known(self) -> Known:
        """All that were ever seen, those that never told their UUID left out."""
        return tuple((entry.index, entry.uuid) for entry in self._entries.values() if entry.uuid)

    def restart_sweep(self) -> None:
        """A new worker begins from the first GPU."""
        self._seen.clear()

    def section(self, now_s: float) -> GpuSection:
        """What holds now."""
        entries = sorted(self._entries.values(), key=lambda entry: (entry.index, entry.uuid))
        return GpuSection(
            tuple(self._gpu(entry, now_s) for entry in entries), self.driver, self._cost()
        )

    def _gpu(self, entry: _Entry, now_s: float) -> Gpu:
        state, reason, age_s = entry.state, entry.reason, now_s - entry.fast_s
        fresh = state is GpuState.OK and age_s <= self.fresh_s
        recent = state is GpuState.OK and now_s - entry.slow_s <= self.slow_fresh_s
        if (
            state is GpuState.OK and not fresh
        ):  # its worker waits for something else, or for a processor
            state, reason = GpuState.UNKNOWN, f"not read for {age_s:.0f} s"
        return Gpu(
            index=entry.index,
            uuid=entry.uuid,
            state=state,
            reason=reason,
            identity=entry.identity,
            fast=entry.fast if fresh else None,
            slow=entry.slow if recent else None,
            last_reading_real_s=entry.read_real_s,
            xids=tuple(entry.xids.values()),
            invalid_total=tuple(entry.invalid.items()),
        )

    def _cost(self) -> NvmlCost:
        return NvmlCost(
            spent_s_total=self._spent_ns / 1e9,
            calls_total=self._calls,
            errors_total=tuple((f, code, n) for (f, code), n in sorted(self._errors.items())),
            hangs_total=tuple(sorted(self._hangs.items())),
            workers_total=self.workers_total,
            workers_stuck=self.workers_stuck,
        )

    def _entry(self, index: int, uuid: str) -> _Entry:
        """By UUID, since indices shift; a GPU that never told its own is known by its index."""
        if not uuid:
            at = [e for e in self._entries.values() if e.index == index]
            here = [e for e in at if e.state is not GpuState.REMOVED] or at
            if here:
                return here[0]
        unnamed = self._entries.pop(f"#{index}", None) if uuid else None
        key = uuid or f"#{index}"
        if key not in self._entries:
            self._entries[key] = unnamed or _Entry(index, uuid)
        entry = self._entries[key]
        entry.index, entry.uuid = index, uuid
        return entry

    def _forget_readings(self, entry: _Entry, state: GpuState, reason: str) -> None:
        entry.state, entry.reason, entry.fast, entry.slow = state, reason, None, None

    def _count_xid(self, event: wire.Xid, real_s: float) -> None:
        entry = self._entries.get(event.uuid)
        if entry is None:
            return
        full = event.xid not in entry.xids and len(entry.xids) >= XID_KINDS_MAX
        xid = XID_OTHER if full else event.xid
        before = entry.xids.get(xid)
        entry.xids[xid] = XidCount(xid, before.events_total + 1 if before else 1, real_s)


def _key(entry: _Entry) -> str:
    return entry.uuid or f"#{entry.index}"

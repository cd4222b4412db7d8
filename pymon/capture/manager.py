"""Takes capture requests, finds the way for each process, and ends every request in receipts and one folder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pymon.base.clock import Clock
from pymon.capture.background import in_background
from pymon.capture.budget import Budget, CaptureSettings
from pymon.capture.bundle import Bundle, keep_within
from pymon.capture.counters import CounterSampling
from pymon.capture.kineto_profile import KinetoProfile
from pymon.capture.probe_orders import Orders, ProbeOrders
from pymon.capture.torch_profile import TorchProfile, first_steps
from pymon.link import wire
from pymon.model.capture import CaptureKind, CaptureReceipt, CaptureRequest, ReceiptStatus
from pymon.model.training import TrainingProcess
from pymon.sources.kineto import KinetoProcess, KinetoSocket

_UNKNOWN = (
    "no probe is attached there and its Kineto does not ask for orders: start it with `pymon run`, "
    "with PYMON=1, or with KINETO_USE_DAEMON=1 while a daemon runs"
)
_NO_PROBE = "counters are sampled by the probe, and none is attached there"


@dataclass(slots=True)
class CaptureManager:
    """One capture at a time; see docs/captures.md."""

    settings: CaptureSettings
    orders: Orders
    kineto: KinetoSocket | None
    clock: Clock
    captures_dir: Path
    spool_dir: Path
    _budget: Budget = field(init=False)
    _probes: ProbeOrders = field(init=False)
    _torch: TorchProfile = field(init=False)
    _counters: CounterSampling = field(init=False)
    _kineto: KinetoProfile = field(init=False)

    def __post_init__(self) -> None:
        self._budget = Budget(self.settings, self.clock, self.captures_dir)
        self._probes = ProbeOrders(self.settings, self.orders, self.spool_dir)
        self._torch = TorchProfile(self.settings, self._probes, self.spool_dir)
        self._counters = CounterSampling(self.settings, self._probes, self.spool_dir)
        self._kineto = KinetoProfile(self.settings, self.kineto, self.spool_dir)

    async def capture(self, request: CaptureRequest) -> tuple[CaptureReceipt, ...]:
        """Always ends, and never raises: a receipt for each process that was asked for, or one that refuses all."""
        if reason := self._budget.refusal(request.cause):
            return tuple(_refused(request, pid, reason) for pid in request.pids or (0,))
        probed, foreign, unknown = self._find(request.pids)
        receipts = [_refused(request, pid, _UNKNOWN) for pid in unknown]
        if request.kind is CaptureKind.COUNTERS:
            receipts += [_refused(request, process.pid, _NO_PROBE) for process in foreign]
            foreign = []
        if not probed and not foreign:
            return tuple(receipts) or (_refused(request, 0, "no process that could be captured"),)
        self._budget.began(request.capture_id, request.cause)
        try:
            receipts += await self._take(request, probed, foreign)
        finally:
            self._budget.ended()
        return tuple(receipts)

    def receipt(self, attach_id: str, receipt: wire.Receipt) -> None:
        """A probe answered."""
        self._probes.receipt(attach_id, receipt)

    def lost(self, attach_id: str) -> None:
        """A probe is gone."""
        self._probes.lost(attach_id)

    def change(self, settings: CaptureSettings) -> None:
        """New bounds, from the next capture on."""
        self.settings = settings
        for part in (self._budget, self._probes, self._torch, self._counters, self._kineto):
            part.settings = settings

    @property
    def under_way(self) -> str:
        """The capture that runs now; empty where none does."""
        return self._budget.busy

    async def _take(
        self,
        request: CaptureRequest,
        probed: Sequence[TrainingProcess],
        foreign: Sequence[KinetoProcess],
    ) -> list[CaptureReceipt]:
        try:
            bundle = Bundle(self.captures_dir, request.capture_id)
        except OSError as err:
            reason = f"{self.captures_dir} cannot be written: {err.strerror}"
            pids = [p.pid for p in probed] + [p.pid for p in foreign]
            return [_refused(request, pid, reason) for pid in pids]
        name, first = request.capture_id, first_steps(probed)
        if request.kind is CaptureKind.COUNTERS:
            orders = [self._counters.capture(name, p, request.burst_s, bundle) for p in probed]
        else:
            orders = [
                self._torch.capture(name, p, request.steps, first[p.attach_id], bundle)
                for p in probed
            ]
        of_kineto = [self._kineto.capture(name, process, bundle) for process in foreign]
        receipts = list(await asyncio.gather(*orders, *of_kineto))
        return await in_background(partial(self._close, request, bundle, receipts))

    def _close(
        self, request: CaptureRequest, bundle: Bundle, receipts: list[CaptureReceipt]
    ) -> list[CaptureReceipt]:
        if not any(receipt.status is ReceiptStatus.WRITTEN for receipt in receipts):
            bundle.discard()
            return receipts
        try:
            bundle.finish(request, receipts)
        except OSError as err:
            bundle.discard()
            reason = f"the capture could not be kept: {err.strerror}"
            return [_failed(receipt, reason) for receipt in receipts]
        with contextlib.suppress(OSError):  # this capture is whole, whatever becomes of older ones
            keep_within(self.captures_dir, self.settings.quota_bytes)
        return receipts

    def _find(
        self, pids: Sequence[int]
    ) -> tuple[list[TrainingProcess], list[KinetoProcess], list[int]]:
        """Attached processes, those that only Kineto knows, and pids that nobody knows."""
        attached = {process.pid: process for process in self.orders.targets()}
        others = (
            {process.pid: process for process in self.kineto.processes()} if self.kineto else {}
        )
        wanted = list(dict.fromkeys(pids)) or [*attached, *(p for p in others if p not in attached)]
        probed = [attached[pid] for pid in wanted if pid in attached]
        foreign = [others[pid] for pid in wanted if pid in others and pid not in attached]
        return probed, foreign, [p for p in wanted if p not in attached and p not in others]


def _refused(request: CaptureRequest, pid: int, reason: str) -> CaptureReceipt:
    refused = ReceiptStatus.REFUSED
    return CaptureReceipt(request.capture_id, request.kind, pid, None, refused, reason)


def _failed(receipt: CaptureReceipt, reason: str) -> CaptureReceipt:
    failed = ReceiptStatus.FAILED
    return CaptureReceipt(
        receipt.capture_id, receipt.kind, receipt.pid, receipt.rank, failed, reason
    )

"""Orders to probes, and how each ends: one receipt, whose files are taken over from the spool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from pymon.capture import spool
from pymon.capture.background import in_background
from pymon.capture.budget import CaptureSettings
from pymon.link import wire
from pymon.model.capture import CaptureFile, CaptureKind, CaptureReceipt, ReceiptStatus
from pymon.model.training import TrainingProcess

Order = wire.CaptureOrder | wire.CountersOrder
# Takes the files of a written order out of its folder; OSError or ValueError where they are not what they must be.
Take = Callable[[Path, wire.Receipt], tuple[CaptureFile, ...]]
TOOK_MOST_S = 660.0  # the longest order and its answer: whoever claims more is not believed
_STEPS_END = 2**63  # what the page can count, and a journal can hold


class Orders(Protocol):
    """What the agent server offers."""

    def targets(self) -> tuple[TrainingProcess, ...]:
        """The attached processes that live."""
        ...

    def send(self, attach_id: str, order: Order) -> bool:
        """False where the process is gone."""
        ...


@dataclass(slots=True)
class ProbeOrders:
    """Waits for the receipts of what it ordered. All methods but the pick-up run on the event loop."""

    settings: CaptureSettings
    orders: Orders
    spool_dir: Path
    _waiting: dict[tuple[str, str], asyncio.Future[wire.Receipt]] = field(default_factory=dict)

    async def carry_out(
        self, kind: CaptureKind, target: TrainingProcess, order: Order, within_s: float, take: Take
    ) -> CaptureReceipt:
        """One order to one process; always ends in a receipt."""
        failed = partial(
            CaptureReceipt,
            order.capture_id,
            kind,
            target.pid,
            target.rank,
            ReceiptStatus.FAILED,
        )
        key = (target.attach_id, order.capture_id)
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            if not self.orders.send(target.attach_id, order):
                return failed("the process is gone")
            receipt = await asyncio.wait_for(answer, within_s)
        except asyncio.TimeoutError:
            return failed(f"no answer within {within_s:.0f} s")
        finally:
            del self._waiting[key]
        return await in_background(partial(self._pick_up, kind, target, receipt, take))

    def receipt(self, attach_id: str, receipt: wire.Receipt) -> None:
        """A probe answered; one that nobody waits for any more is left in the spool until the next start."""
        answer = self._waiting.get((attach_id, receipt.capture_id))
        if answer is not None and not answer.done():
            answer.set_result(receipt)

    def lost(self, attach_id: str) -> None:
        """The process is gone, and with it whatever it was ordered to do."""
        for (waiting_id, capture_id), answer in list(self._waiting.items()):
            if waiting_id == attach_id and not answer.done():
                reason = "the process ended, or its connection did, while it was captured"
                answer.set_result(wire.Receipt(capture_id, "failed", reason))

    def _pick_up(
        self, kind: CaptureKind, target: TrainingProcess, receipt: wire.Receipt, take: Take
    ) -> CaptureReceipt:
        """In a worker thread: the files of a written order go from the spool into the bundle."""
        folder = self.spool_dir / f"{receipt.capture_id}-{target.attach_id}"  # whatever it names
        try:
            status = ReceiptStatus(receipt.status)
        except ValueError:
            status = ReceiptStatus.FAILED
        files: tuple[CaptureFile, ...] = ()
        reason = _printable(receipt.reason)
        if status is ReceiptStatus.WRITTEN:
            try:
                files = take(folder, receipt)
            except (OSError, ValueError) as err:
                what = "trace" if kind is CaptureKind.TORCH else "file"
                status, reason = ReceiptStatus.FAILED, f"the {what} could not be taken over: {err}"
        elif not reason:
            reason = "the process gave no reason"
        spool.clear(folder)
        return CaptureReceipt(
            capture_id=receipt.capture_id,
            kind=kind,
            pid=target.pid,
            rank=target.rank,
            status=status,
            reason=reason,
            files=files,
            first_step=receipt.first_step if 0 < receipt.first_step < _STEPS_END else None,
            steps=min(max(receipt.steps, 0), self.settings.steps_max),
            took_s=receipt.took_s if 0 <= receipt.took_s <= TOOK_MOST_S else 0.0,
        )


def stem_of(target: TrainingProcess) -> str:
    """What the names of a process's files begin with."""
    rank = f"rank{target.rank}-" if target.rank is not None else ""
    return f"{rank}pid{target.pid}"


def _printable(text: str) -> str:
    """A trainer's words end on somebody's terminal: no control characters."""
    return "".join(char if char.isprintable() else " " for char in text)

"""Kind `torch`: the probe runs torch.profiler on step boundaries and leaves the trace in the spool."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from pymon.capture import spool
from pymon.capture.background import in_background
from pymon.capture.budget import CaptureSettings
from pymon.capture.bundle import Bundle
from pymon.link import wire
from pymon.model.capture import CaptureFile, CaptureKind, CaptureReceipt, ReceiptStatus
from pymon.model.training import TrainingProcess

# Beyond the order's own limit: the probe answers up to ten seconds late, and then exports.
ANSWER_SLACK_S = 20.0
# Steps between an order and its first step: the order takes half a second to arrive, then sizing takes three steps.
ARRIVAL_S = 1.5
ARRIVAL_STEPS = 6
# A process with steps of half a minute is captured too. Beyond this nobody waits: it hangs rather than trains.
LONGEST_S = 600.0
_STEPS_END = 2**63  # what the page can count, and a journal can hold
SLOWDOWN_RATIO = 2.0  # profiled steps took up to 1.85 times as long (small operators)


class Orders(Protocol):
    """What the agent server offers."""

    def targets(self) -> tuple[TrainingProcess, ...]:
        """The attached processes that live."""
        ...

    def send(self, attach_id: str, order: wire.CaptureOrder) -> bool:
        """False where the process is gone."""
        ...


@dataclass(slots=True)
class TorchProfile:
    """Orders captures and waits for their receipts. All methods but the pick-up run on the event loop."""

    settings: CaptureSettings
    orders: Orders
    spool_dir: Path
    _waiting: dict[tuple[str, str], asyncio.Future[wire.Receipt]] = field(default_factory=dict)

    async def capture(
        self, capture_id: str, target: TrainingProcess, steps: int, first_step: int, bundle: Bundle
    ) -> CaptureReceipt:
        """One process; always ends in a receipt."""
        steps = min(max(steps, 1), self.settings.steps_max)
        max_s = self._seconds(target, steps, first_step)
        order = wire.CaptureOrder(
            capture_id=capture_id,
            spool=str(self.spool_dir),
            first_step=first_step,
            steps=steps,
            max_s=max_s,
            max_events=self.settings.max_events,
            min_free_bytes=self.settings.min_free_bytes,
        )
        key = (target.attach_id, capture_id)
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            if not self.orders.send(target.attach_id, order):
                return _receipt(capture_id, target, ReceiptStatus.FAILED, "the process is gone")
            receipt = await asyncio.wait_for(answer, max_s + ANSWER_SLACK_S)
        except asyncio.TimeoutError:
            reason = f"no answer within {max_s + ANSWER_SLACK_S:.0f} s"
            return _receipt(capture_id, target, ReceiptStatus.FAILED, reason)
        finally:
            del self._waiting[key]
        return await in_background(partial(self._pick_up, capture_id, target, receipt, bundle))

    def _seconds(self, target: TrainingProcess, steps: int, first_step: int) -> float:
        """The order's limit: more than the setting where so many steps of this process take longer anyway."""
        wait = first_step - target.steps_total if first_step else ARRIVAL_STEPS
        needed_s = SLOWDOWN_RATIO * (wait + steps) * step_s(target)
        return max(self.settings.max_s, min(needed_s, LONGEST_S))

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
        self, capture_id: str, target: TrainingProcess, receipt: wire.Receipt, bundle: Bundle
    ) -> CaptureReceipt:
        """In a worker thread: the files of a written capture go from the spool into the bundle."""
        folder = self.spool_dir / f"{capture_id}-{target.attach_id}"  # whatever the receipt names
        try:
            status = ReceiptStatus(receipt.status)
        except ValueError:
            status = ReceiptStatus.FAILED
        files: tuple[CaptureFile, ...] = ()
        reason = _printable(receipt.reason)
        if status is ReceiptStatus.WRITTEN:
            try:
                files = self._files(folder, target, receipt, bundle)
            except (OSError, ValueError) as err:
                status, reason = ReceiptStatus.FAILED, f"the trace could not be taken over: {err}"
        elif not reason:
            reason = "the process gave no reason"
        spool.clear(folder)
        return CaptureReceipt(
            capture_id=capture_id,
            kind=CaptureKind.TORCH,
            pid=target.pid,
            rank=target.rank,
            status=status,
            reason=reason,
            files=files,
            first_step=receipt.first_step if 0 < receipt.first_step < _STEPS_END else None,
            steps=min(max(receipt.steps, 0), self.settings.steps_max),
            took_s=receipt.took_s if 0 <= receipt.took_s <= LONGEST_S + ANSWER_SLACK_S else 0.0,
        )

    def _files(
        self, folder: Path, target: TrainingProcess, receipt: wire.Receipt, bundle: Bundle
    ) -> tuple[CaptureFile, ...]:
        rank = f"rank{target.rank}-" if target.rank is not None else ""
        stem = f"{rank}pid{target.pid}"
        limit = self.settings.trace_max_bytes
        files = [bundle.take(folder, "trace.json", f"{stem}.trace.json.gz", target.uid, limit)]
        if "call_sites.json" in receipt.files:
            name = f"{stem}.call_sites.json"
            files.append(bundle.take(folder, "call_sites.json", name, target.uid, limit))
        return tuple(files)


def _printable(text: str) -> str:
    """A trainer's words end on somebody's terminal: no control characters."""
    return "".join(char if char.isprintable() else " " for char in text)


def _receipt(
    capture_id: str, target: TrainingProcess, status: ReceiptStatus, reason: str
) -> CaptureReceipt:
    return CaptureReceipt(capture_id, CaptureKind.TORCH, target.pid, target.rank, status, reason)


def first_steps(targets: Sequence[TrainingProcess]) -> dict[str, int]:
    """By attach id, the step to begin at: the same one for all ranks of a job, 0 (the next) for one alone."""
    jobs: dict[tuple[str, str, int | None], list[TrainingProcess]] = defaultdict(list)
    for target in targets:
        jobs[(target.job_id, target.run_id, target.world_size)].append(target)
    first = {}
    for ranks in jobs.values():
        together = len(ranks) > 1 and (ranks[0].world_size or 1) > 1
        ahead = max(rank.steps_total + _arrival_steps(rank) for rank in ranks)
        first.update({rank.attach_id: ahead if together else 0 for rank in ranks})
    return first


def _arrival_steps(process: TrainingProcess) -> int:
    usual_s = step_s(process)
    return ARRIVAL_STEPS + (math.ceil(ARRIVAL_S / usual_s) if usual_s else 0)


def step_s(process: TrainingProcess) -> float:
    """How long a step takes now, in seconds; 0 where none has ended.

    The newest steps tell best. A slow process has none in most ticks: then the mean of all, or the open step's age.
    """
    if process.new_median_s:
        return process.new_median_s
    ended = sum(process.step_histogram.counts)
    mean_s = process.step_histogram.sum_s / ended if ended else 0.0
    return max(mean_s, process.open_step_age_s or 0.0)

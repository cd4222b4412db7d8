"""Kind `torch`: the probe runs torch.profiler on step boundaries and leaves the trace in the spool."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pymon.capture.budget import CaptureSettings
from pymon.capture.bundle import Bundle
from pymon.capture.probe_orders import ProbeOrders, stem_of
from pymon.link import wire
from pymon.model.capture import CaptureFile, CaptureKind, CaptureReceipt
from pymon.model.training import TrainingProcess

# Beyond the order's own limit: the probe answers up to ten seconds late, and then exports.
ANSWER_SLACK_S = 20.0
# Steps between an order and its first step: the order takes half a second to arrive, then sizing takes three steps.
ARRIVAL_S = 1.5
ARRIVAL_STEPS = 6
# A process with steps of half a minute is captured too. Beyond this nobody waits: it hangs rather than trains.
LONGEST_S = 600.0
SLOWDOWN_RATIO = 2.0  # profiled steps took up to 1.85 times as long (small operators)


@dataclass(slots=True)
class TorchProfile:
    """Orders captures on step boundaries."""

    settings: CaptureSettings
    probes: ProbeOrders
    spool_dir: Path

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
        take = partial(self._files, target, bundle)
        return await self.probes.carry_out(
            CaptureKind.TORCH, target, order, max_s + ANSWER_SLACK_S, take
        )

    def _seconds(self, target: TrainingProcess, steps: int, first_step: int) -> float:
        """The order's limit: more than the setting where so many steps of this process take longer anyway."""
        wait = first_step - target.steps_total if first_step else ARRIVAL_STEPS
        needed_s = SLOWDOWN_RATIO * (wait + steps) * step_s(target)
        return max(self.settings.max_s, min(needed_s, LONGEST_S))

    def _files(
        self, target: TrainingProcess, bundle: Bundle, folder: Path, receipt: wire.Receipt
    ) -> tuple[CaptureFile, ...]:
        stem, limit = stem_of(target), self.settings.trace_max_bytes
        files = [bundle.take(folder, "trace.json", f"{stem}.trace.json.gz", target.uid, limit)]
        if "call_sites.json" in receipt.files:
            name = f"{stem}.call_sites.json"
            files.append(bundle.take(folder, "call_sites.json", name, target.uid, limit))
        return tuple(files)


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

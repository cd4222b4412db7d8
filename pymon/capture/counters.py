"""Kind `counters`: the probe has a child sample its GPU's hardware counters, and leaves them in the spool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pymon.capture.budget import CaptureSettings
from pymon.capture.bundle import Bundle
from pymon.capture.probe_orders import ProbeOrders, stem_of
from pymon.link import wire
from pymon.model.capture import CaptureFile, CaptureKind, CaptureReceipt
from pymon.model.training import TrainingProcess

LONGEST_S = 10.0  # of a burst
# Beyond the burst: the probe kills its child after 15 s and gives it up 5 s later (pymon/probe/counters.py).
ANSWER_SLACK_S = 30.0
MAX_BYTES = 4 * 1024 * 1024  # 4,000 samples of ten metrics are half a megabyte
SUFFIX = ".counters.json"


@dataclass(slots=True)
class CounterSampling:
    """Orders bursts of hardware counters."""

    settings: CaptureSettings
    probes: ProbeOrders
    spool_dir: Path

    async def capture(
        self, capture_id: str, target: TrainingProcess, seconds: float, bundle: Bundle
    ) -> CaptureReceipt:
        """One process; always ends in a receipt."""
        seconds = min(seconds, LONGEST_S)
        free = self.settings.min_free_bytes
        order = wire.CountersOrder(capture_id, str(self.spool_dir), seconds, free)
        take = partial(self._files, target, bundle)
        return await self.probes.carry_out(
            CaptureKind.COUNTERS, target, order, seconds + ANSWER_SLACK_S, take
        )

    @staticmethod
    def _files(
        target: TrainingProcess, bundle: Bundle, folder: Path, _: wire.Receipt
    ) -> tuple[CaptureFile, ...]:
        name = f"{stem_of(target)}{SUFFIX}"
        return (bundle.take(folder, "counters.json", name, target.uid, MAX_BYTES),)

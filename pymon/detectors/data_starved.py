"""A process whose training thread waits for its loader a good part of each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pymon.base.units import human_seconds, ratio
from pymon.detectors.ticks import Tick, living, subject_of, ticks_of
from pymon.model.finding import Finding
from pymon.model.snapshot import Section, Snapshot
from pymon.model.training import PHASES, TrainingProcess, TrainingSection

_DATA_WAIT = PHASES.index("data_wait")


@dataclass(frozen=True, slots=True)
class DataStarved:
    """Gives one `Finding`, as a ratio, for each process that waits for its input.

    Reads: mean data wait and step time of each tick in `TrainingSection`.
    Fires: in each of the last `confirm_ticks` ticks with steps, data wait takes `wait_ratio` of the steps' time.
    Quiet: within `warm_up_steps`; before `judged_steps` steps; where batches come from no DataLoader, which is
        unknown and not starved; while a capture runs.
    Errors: none; absent data gives no finding.
    """

    name: ClassVar[str] = "data_starved"
    window_s: ClassVar[float] = 60.0
    reads: ClassVar[tuple[type[Section], ...]] = (TrainingSection,)
    # Midway between what public traces show of a healthy loader (1.0 % of the step) and of its starved twin
    # (39.6 %): docs/facts.md names them. The wait may overlap work of the GPU, so the capture has to confirm it.
    wait_ratio: float = 0.20
    confirm_ticks: int = 3  # as step_slow
    judged_steps: int = 10
    warm_up_steps: int = 10  # workers start and prefetch during the first steps

    def detect(self, recent: Sequence[Snapshot]) -> Iterator[Finding]:
        """Judge each living process."""
        for process in living(recent):
            ticks = ticks_of(recent, process.attach_id, self.warm_up_steps)
            now = ticks[-self.confirm_ticks :]
            enough = sum(tick.steps for tick in ticks) >= self.judged_steps
            if len(now) == self.confirm_ticks and enough and not process.capturing:
                yield from self._judge(process, now)

    def _judge(self, process: TrainingProcess, now: Sequence[Tick]) -> Iterator[Finding]:
        if min(_wait_ratio(tick) for tick in now) < self.wait_ratio:
            return
        steps = sum(tick.steps for tick in now)
        wait_s = sum(tick.phase_mean_s[_DATA_WAIT] * tick.steps for tick in now) / steps
        step_s = sum(sum(tick.phase_mean_s) * tick.steps for tick in now) / steps
        yield Finding(
            detector=self.name,
            subject=subject_of(process),
            observed=ratio(wait_s / step_s),
            limit=ratio(self.wait_ratio),
            summary=f"the training thread waits {human_seconds(wait_s)} of each "
            f"{human_seconds(step_s)} step for its loader ({ratio(wait_s / step_s)})",
            evidence=_loader(process),
        )


def _wait_ratio(tick: Tick) -> float:
    step_s = sum(tick.phase_mean_s)
    return tick.phase_mean_s[_DATA_WAIT] / step_s if step_s > 0 else 0.0


def _loader(process: TrainingProcess) -> tuple[str, ...]:
    if process.loader_workers is None:
        return ()
    if process.loader_workers == 0:
        return ("the loader has no workers: batches are made in the training process itself",)
    return (f"the loader has {process.loader_workers} workers",)

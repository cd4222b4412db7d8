"""A process whose steps became slower than they used to be, and stay so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pymon.base.units import human_seconds, ratio, seconds
from pymon.detectors.ticks import Tick, living, median_and_mad, subject_of, ticks_of
from pymon.model.finding import Finding
from pymon.model.snapshot import Section, Snapshot
from pymon.model.training import PHASES, TrainingProcess, TrainingSection

_MAD_TO_SIGMA = 1.4826  # of a normal distribution


@dataclass(frozen=True, slots=True)
class StepSlow:
    """Gives one `Finding`, in seconds, for each process whose step time shifted up.

    Reads: median step time of each tick in `TrainingSection`, over `window_s`.
    Fires: the last `confirm_ticks` ticks with steps all lie above what was usual before they became slow, by
        `slow_ratio` and by `mad_factor` deviations. A finding holds as long as the loop stays slow, up to `window_s`;
        then the new level is the usual one.
    Quiet: within `warm_up_steps`; with fewer than `reference_ticks` ticks or `reference_steps` steps to compare with;
        for single slow steps (checkpoints, a pause of the collector); while a capture runs.
    Errors: none; absent data gives no finding.
    """

    name: ClassVar[str] = "step_slow"
    window_s: ClassVar[float] = 900.0
    reads: ClassVar[tuple[type[Section], ...]] = (TrainingSection,)
    # A published detector that verifies workloads alarms at 25 % over the predicted step time (arXiv 2605.06374).
    slow_ratio: float = 1.25
    # Five deviations of the median absolute kind, as arXiv 2506.08528 takes for functions of a step.
    mad_factor: float = 5.0
    # Detection within three iterations is what the best published detectors reach (arXiv 2410.12588).
    confirm_ticks: int = 3
    reference_ticks: int = 3
    stretch_ticks: int = (
        10  # ten seconds of most loops: longer than a pause, shorter than most healthy times
    )
    reference_steps: int = (
        20  # the least for which another monitor judges (docs/metrics.md, step_slow)
    )
    warm_up_steps: int = 10  # the first steps compile, allocate and fill caches

    def detect(self, recent: Sequence[Snapshot]) -> Iterator[Finding]:
        """Judge each living process."""
        for process in living(recent):
            ticks = ticks_of(recent, process.attach_id, self.warm_up_steps)
            if process.capturing or len(ticks) < self.reference_ticks + self.confirm_ticks:
                continue
            before = ticks[: self._slow_from(ticks)]
            enough = sum(tick.steps for tick in before) >= self.reference_steps
            if len(before) >= self.reference_ticks and enough:
                yield from self._judge(process, ticks[-self.confirm_ticks :], before)

    def _slow_from(self, ticks: Sequence[Tick]) -> int:
        """Where the slow ticks at the end begin: what lies before them is compared with.

        Slow is what exceeds the fastest stretch by `slow_ratio`. Fewer fast ones in a row than confirm a shift do not
        end a slow stretch.
        """
        stretch = min(self.stretch_ticks, len(ticks) - self.confirm_ticks)
        medians = [tick.median_s for tick in ticks]
        fastest_s = min(
            median_and_mad(medians[at : at + stretch])[0]
            for at in range(0, len(medians) - stretch + 1, max(1, stretch // 2))
        )
        fast_run, begin = 0, len(ticks) - self.confirm_ticks
        for at in range(len(ticks) - 1, -1, -1):
            fast_run = fast_run + 1 if medians[at] <= fastest_s * self.slow_ratio else 0
            if fast_run >= self.confirm_ticks:
                break
            if not fast_run:
                begin = min(begin, at)
        return begin

    def _judge(
        self, process: TrainingProcess, now: Sequence[Tick], before: Sequence[Tick]
    ) -> Iterator[Finding]:
        usual_s, mad_s = median_and_mad([tick.median_s for tick in before])
        spread_s = _MAD_TO_SIGMA * mad_s
        limit_s = max(usual_s * self.slow_ratio, usual_s + self.mad_factor * spread_s)
        if min(tick.median_s for tick in now) <= limit_s:
            return
        now_s = median_and_mad([tick.median_s for tick in now])[0]
        yield Finding(
            detector=self.name,
            subject=subject_of(process),
            observed=seconds(now_s),
            limit=seconds(limit_s),
            summary=f"step takes {human_seconds(now_s)}, usually {human_seconds(usual_s)} "
            f"({now_s / usual_s:.1f} times as long)",
            evidence=_grown_phases(now, before),
        )


def _grown_phases(now: Sequence[Tick], usual: Sequence[Tick]) -> tuple[str, ...]:
    """Which phases took the extra time, largest first; those below a tenth of it go unnamed."""
    now, usual = ([tick for tick in ticks if tick.phase_mean_s] for ticks in (now, usual))
    if not now or not usual:
        return ()
    grown = []
    for slot, phase in enumerate(PHASES):
        now_s, usual_s = _phase_s(now, slot), _phase_s(usual, slot)
        grown.append((now_s - usual_s, phase, now_s, usual_s))
    extra_s = sum(extra for extra, *_ in grown if extra > 0)
    return tuple(
        f"{phase}: {human_seconds(now_s)} a step, usually {human_seconds(usual_s)} "
        f"({ratio(extra / extra_s)} of the extra time)"
        for extra, phase, now_s, usual_s in sorted(grown, reverse=True)
        if extra > 0.1 * extra_s
    )


def _phase_s(ticks: Sequence[Tick], slot: int) -> float:
    return median_and_mad([tick.phase_mean_s[slot] for tick in ticks])[0]

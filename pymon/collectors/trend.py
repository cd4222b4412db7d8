"""How much a number grows per step: Theil's estimator over samples of the last ten minutes.

The median of the slopes of all pairs (H. Theil 1950, P. K. Sen 1968): up to 29 % of the samples, as those within an
evaluation or before the optimizer's state was made, may lie anywhere without moving it far.
"""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Final

SPACING_S: Final = 10.0
SAMPLES_MAX: Final = 64  # 2,016 pairs, half a millisecond each ten seconds
# From where on the normal approximation of Kendall's statistic holds, by which such a trend is judged (R. O. Gilbert,
# Statistical Methods for Environmental Pollution Monitoring, 1987, 16.4).
SAMPLES_MIN: Final = 10


@dataclass(slots=True)
class Trend:
    """Of one number of one process."""

    per_step: float | None = None  # None before there are SAMPLES_MIN
    _samples: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    _taken_ns: int | None = None

    def note(self, step: int, value: int, now_ns: int) -> float | None:
        """Takes the value if the last one is long enough ago; steps that do not go on are no samples."""
        if self._taken_ns is not None and now_ns - self._taken_ns < SPACING_S * 1e9:
            return self.per_step
        if self._samples and step <= self._samples[-1][0]:
            return self.per_step
        self._taken_ns = now_ns
        self._samples.append((step, value))
        if len(self._samples) >= SAMPLES_MIN:
            pairs = itertools.combinations(self._samples, 2)
            self.per_step = statistics.median((b - a) / (n - m) for (m, a), (n, b) in pairs)
        return self.per_step


@dataclass(slots=True)
class Trends:
    """Of one process, by what they are of."""

    _by_name: dict[str, Trend] = field(default_factory=dict)

    def note(self, name: str, step: int, value: int | None, now_ns: int) -> float | None:
        """As `Trend.note`; what is not told has no trend."""
        if value is None:
            return None
        return self._by_name.setdefault(name, Trend()).note(step, value, now_ns)

"""The visible list of detectors. Each looks at recent snapshots and says what holds now; incidents give it a life."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, Protocol

from pymon.detectors.data_starved import DataStarved
from pymon.detectors.step_slow import StepSlow
from pymon.model.finding import Finding
from pymon.model.snapshot import Section, Snapshot


class Detector(Protocol):
    """One anomaly. The same snapshots always give the same findings, so that any detector can be replayed."""

    name: ClassVar[str]
    window_s: ClassVar[float]  # how far back it looks
    reads: ClassVar[tuple[type[Section], ...]]  # and at what: nothing else is remembered

    def detect(self, recent: Sequence[Snapshot]) -> Iterator[Finding]:
        """Judge snapshots, oldest first; there is always at least one."""
        ...


ALL: Final[tuple[Detector, ...]] = (StepSlow(), DataStarved())
"""In the order in which causes are looked at."""

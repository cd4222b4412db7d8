"""Counters of the kernel that step back although nothing was reset (iowait does; drivers do)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Rising:
    """Holds a counter at its height while it is a little below; a real reset begins near zero again and passes.

    What lies between is told by half of the height: Prometheus would count a small step back as a reset and add the
    whole height once more, and no counter comes from zero to half of its lifetime's height between two readings.
    """

    _heights: dict[Hashable, float] = field(default_factory=dict)
    _seen: set[Hashable] = field(default_factory=set)

    def hold(self, key: Hashable, value: float) -> float:
        """The value, or the height so far."""
        height = self._heights.get(key, 0.0)
        held = height if height / 2 <= value < height else value
        self._heights[key] = held
        self._seen.add(key)
        return held

    def forget_unseen(self) -> None:
        """Drops what was not held since the last call: devices and processes come and go."""
        for key in self._heights.keys() - self._seen:
            del self._heights[key]
        self._seen.clear()

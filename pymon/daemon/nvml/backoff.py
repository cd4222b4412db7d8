"""When something that failed may be tried again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

EVENTS: Final = -2  # the driver's events, beside the GPUs' indices
RETRY_S, RETRY_MAX_S = 60.0, 600.0  # what hung or crashed


@dataclass(slots=True)
class Backoff:
    """Each failure doubles the wait, from `first_s` to `most_s`."""

    first_s: float
    most_s: float
    at_s: float = 0.0
    wait_s: float = 0.0

    def failed(self, now_s: float) -> None:
        """Not before a while from now."""
        self.wait_s = min(self.most_s, 2 * self.wait_s or self.first_s)
        self.at_s = now_s + self.wait_s


@dataclass(slots=True)
class Skips:
    """GPUs by index, and EVENTS, that are left alone for a while since a call about them hung or crashed."""

    _backoffs: dict[int, Backoff] = field(default_factory=dict)

    def __contains__(self, index: int) -> bool:
        return index in self._backoffs

    def add(self, index: int, now_s: float) -> None:
        """It failed, again perhaps."""
        self._backoffs.setdefault(index, Backoff(RETRY_S, RETRY_MAX_S)).failed(now_s)

    def discard(self, index: int) -> None:
        """It answers."""
        self._backoffs.pop(index, None)

    def clear(self) -> None:
        """Indices mean other GPUs from now on."""
        self._backoffs.clear()

    def try_all(self, now_s: float) -> None:
        """The driver moves again."""
        for backoff in self._backoffs.values():
            backoff.at_s = now_s

    def now(self, now_s: float, held: set[int], spare: bool) -> set[int]:
        """What to leave alone in this sweep. One at a time is tried again, since each may cost a worker: none that a
        worker is still stuck at (`held`), and none where the worker is the last one (`spare`)."""
        due = next(self._due(now_s, held), None) if spare else None
        return {index for index in self._backoffs if index != due}

    def _due(self, now_s: float, held: set[int]) -> Iterator[int]:
        return (i for i, b in self._backoffs.items() if now_s >= b.at_s and i not in held)

"""Time, as a part that tests can replace.

`monotonic_ns` is CLOCK_MONOTONIC, the clock of the page (`csrc/core/clock.h`), so that the daemon may compare the two.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Where a part takes its time from."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC, for durations; comparable between processes of one boot."""
        ...

    def real_ns(self) -> int:
        """Nanoseconds since 1970, for people and for joining hosts."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The real clock."""

    def monotonic_ns(self) -> int:
        """See `Clock`."""
        return time.monotonic_ns()

    def real_ns(self) -> int:
        """See `Clock`."""
        return time.time_ns()

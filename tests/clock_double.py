"""A double of the clock, which only a test moves."""

from dataclasses import dataclass


@dataclass
class ClockDouble:
    now_s: float = 0.0

    def monotonic_ns(self):
        return int(self.now_s * 1e9)

    def real_ns(self):
        return int(self.now_s * 1e9)

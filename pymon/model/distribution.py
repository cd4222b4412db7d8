"""Distributions as the page and the metrics hold them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Histogram:
    """Log2 buckets of durations: bucket i counts values below `first_bound_s * 2**i`, the last one all others."""

    first_bound_s: float
    counts: tuple[int, ...]
    sum_s: float

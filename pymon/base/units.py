"""A number with its unit, and how people read it."""

from __future__ import annotations

from dataclasses import dataclass

_TIME_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTE_STEPS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured value; `unit` is `s`, `bytes`, `ratio` or `count`."""

    value: float
    unit: str

    def __str__(self) -> str:
        if self.unit == "s":
            return human_seconds(self.value)
        if self.unit == "bytes":
            return human_bytes(self.value)
        if self.unit == "ratio":
            return f"{100 * self.value:.1f} %"
        return f"{self.value:,.0f}"


def seconds(value: float) -> Quantity:
    """A duration in seconds."""
    return Quantity(value, "s")


def ratio(value: float) -> Quantity:
    """A share of one."""
    return Quantity(value, "ratio")


def count(value: float) -> Quantity:
    """A number of things."""
    return Quantity(value, "count")


def size(value: float) -> Quantity:
    """A number of bytes."""
    return Quantity(value, "bytes")


def human_seconds(value: float) -> str:
    """Three digits and the unit that fits: `1.24 s`, `83.0 ms`, `12.1 µs`; from two minutes on `2 min 05 s`."""
    if abs(value) >= 120:
        return f"{int(value // 60)} min {int(value % 60):02d} s"
    for factor, unit in _TIME_STEPS:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return "0 s" if value == 0 else f"{value / 1e-9:.3g} ns"


def human_bytes(value: float) -> str:
    """Binary units, one decimal."""
    for unit in _BYTE_STEPS:
        if abs(value) < 1024 or unit == _BYTE_STEPS[-1]:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable: the last unit always returns")

"""A burst of hardware counters in lines for a terminal."""

from __future__ import annotations

from pymon.base.units import human_bytes, human_seconds, ratio
from pymon.model.counters import CounterBurst

_SHARES = (
    ("SM active", "sm_active_ratio"),
    ("tensor pipe active", "tensor_active_ratio"),
    ("SM occupancy", "sm_occupancy_ratio"),
    ("DRAM active", "dram_active_ratio"),
)
_RATES = (
    ("DRAM", "dram_bytes_per_s"),
    ("PCIe read", "pcie_read_bytes_per_s"),
    ("PCIe written", "pcie_write_bytes_per_s"),
    ("NVLink received", "nvlink_received_bytes_per_s"),
    ("NVLink sent", "nvlink_sent_bytes_per_s"),
)


def lines(burst: CounterBurst) -> list[str]:
    """Each metric, what was lost, and what the clocks did."""
    over = f"{human_seconds(burst.duration_s)}, {burst.samples_total:,} samples"
    told = [f"pid {burst.pid}: {burst.device} ({burst.chip}), whole GPU, {over}"]
    told += [_line(label, _share(getattr(burst, name))) for label, name in _SHARES]
    told += [_line(label, _rate(getattr(burst, name))) for label, name in _RATES]
    told.append(_line("SM clock", _clocks(burst)))
    told.append("  the clocks are locked while counters run: kernels take another time than before")
    if burst.samples_lost or burst.overflows:
        lost = f"{burst.samples_lost:,} samples lost"
        told.append(f"  {lost}; the buffer on the GPU ran full {burst.overflows} times")
    return told


def _line(label: str, value: str) -> str:
    return f"  {label:<20}{value}"


def _share(value: float | None) -> str:
    return "not counted by this chip" if value is None else str(ratio(value))


def _rate(value: float | None) -> str:
    return "not counted by this chip" if value is None else f"{human_bytes(value)}/s"


def _clocks(burst: CounterBurst) -> str:
    times = (
        ("before", burst.sm_clock_before_hz),
        ("in the burst", burst.sm_clock_hz),
        ("after", burst.sm_clock_after_hz),
    )
    return ", ".join(
        f"{when} {'unknown' if hz is None else f'{hz / 1e6:,.0f} MHz'}" for when, hz in times
    )

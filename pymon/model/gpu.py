"""What the node knows about its GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.model.snapshot import Section


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU by NVML; a field that the GPU does not report is None."""

    uuid: str
    index: int
    name: str
    utilization_ratio: float | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    power_w: float | None
    temperature_celsius: float | None


@dataclass(frozen=True, slots=True)
class GpuSection(Section):
    """Every GPU that answered, and the indices of those that did not."""

    gpus: tuple[Gpu, ...]
    unreadable: tuple[int, ...] = ()

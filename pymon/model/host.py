"""What the node knows about itself."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.model.snapshot import Section


@dataclass(frozen=True, slots=True)
class HostSection(Section):
    """Processors and memory of the host; what a cgroup allows is not in here."""

    cpu_count: int
    cpu_busy_ratio: float | None  # since the previous tick; None on the first
    memory_total_bytes: int
    memory_available_bytes: int


@dataclass(frozen=True, slots=True)
class ShmSection(Section):
    """`/dev/shm` as statvfs tells it."""

    total_bytes: int
    used_bytes: int
    free_bytes: int

"""The page's section of memory, with names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pymon.link import layout

# enum AllocatorValue and enum HostValue of csrc/core/layout_memory.h, in their order.
ALLOCATOR_VALUES: Final = (
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
    "allocated_peak_bytes",
    "reserved_peak_bytes",
    "segments",
    "alloc_retries_total",
    "ooms_total",
    "device_allocs_total",
    "device_frees_total",
    "device_memory_bytes",
)
HOST_VALUES: Final = (
    "rss_bytes",
    "descriptors",
    "shm_bytes",
    "uss_bytes",
    "workers",
    "workers_rss_bytes",
    "workers_descriptors",
    "workers_shm_bytes",
    "workers_uss_bytes",
)


@dataclass(frozen=True, slots=True)
class AllocatorSample:
    """One device; `values` by ALLOCATOR_VALUES, and only those that its allocator has."""

    device: int  # torch's index
    uuid: str  # as NVML has it; empty: not known
    step: int  # the one that had just ended
    read_mono_ns: int
    values: dict[str, int]


@dataclass(frozen=True, slots=True)
class MemorySample:
    """One whole state; `host` by HOST_VALUES: what was read and when (mono, ns). What could not be is not in it."""

    allocators: tuple[AllocatorSample, ...]
    host: dict[str, tuple[int, int]]


def memory_sample(body: bytes) -> MemorySample:
    """`body` is a MemoryBody of csrc/core/layout_memory.h."""
    devices = min(int.from_bytes(body[:8], "little"), layout.ALLOCATOR_DEVICES)
    words = layout.MEMORY_HOST.unpack_from(body, layout.MEMORY_HOST_BYTE)
    read_ns, values = words[: layout.HOST_VALUES], words[layout.HOST_VALUES :]
    size = layout.ALLOCATOR_STATE.size
    return MemorySample(
        allocators=tuple(
            _allocator(body, layout.MEMORY_ALLOCATOR_BYTE + slot * size) for slot in range(devices)
        ),
        host={
            name: (value, at)
            for name, value, at in zip(HOST_VALUES, values, read_ns, strict=False)
            if at
        },
    )


def _allocator(body: bytes, at: int) -> AllocatorSample:
    raw, device, step, read_ns, told, *values = layout.ALLOCATOR_STATE.unpack_from(body, at)
    text = raw.split(b"\0", 1)[0].decode("ascii", "replace")
    return AllocatorSample(
        device=device,
        uuid="".join(char for char in text if char.isalnum() or char in "-/"),
        step=step,
        read_mono_ns=read_ns,
        values={
            name: value
            for bit, (name, value) in enumerate(zip(ALLOCATOR_VALUES, values, strict=False))
            if told >> bit & 1
        },
    )

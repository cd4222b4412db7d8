"""The memory of a training process: what torch's CUDA allocator holds on each device, and its own on the host."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AllocatorUse:
    """One device, after a step. None: this allocator, or this torch, does not tell.

    Names are those of torch.cuda.memory_stats. A peak is the one that the user sees: since the start,
    or since they reset it last.
    """

    device: int  # torch's index, which need not be NVML's
    uuid: str  # as NVML has it; empty: not known
    step: int
    age_s: float  # since it was read
    allocated_bytes: int | None = None  # of tensors
    reserved_bytes: int | None = None  # taken from the device: those, and what is cached
    active_bytes: int | None = None  # allocated, or freed and still in use by another stream
    inactive_split_bytes: int | None = (
        None  # free parts of blocks in use: cannot be given back to the device
    )
    requested_bytes: int | None = None  # as asked for, before rounding
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    segments: int | None = None
    alloc_retries_total: int | None = None  # flushes of the whole cache, to try once more
    ooms_total: int | None = None
    device_allocs_total: int | None = None  # cudaMalloc and the like
    device_frees_total: int | None = None
    device_memory_bytes: int | None = None  # of the device
    # Bytes per step over the last ten minutes; None before there are enough samples (`collectors/trend.py`).
    allocated_slope_bytes: float | None = None
    reserved_slope_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class HostUse:
    """Of the process, and of its loader workers all together. None: not told, or may not be read."""

    rss_bytes: int | None = None
    descriptors: int | None = None
    shm_bytes: int | None = None  # files of /dev/shm that it holds, by descriptor or mapping
    uss_bytes: int | None = None  # private pages: what its end would free
    workers: int | None = None
    workers_rss_bytes: int | None = None  # pages that they share count for each
    workers_descriptors: int | None = None
    workers_shm_bytes: int | None = (
        None  # of files that the process itself does not hold: batches on their way
    )
    workers_uss_bytes: int | None = None
    rss_slope_bytes: float | None = None  # per step, as above


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """`allocators`: one for each device that it uses; none without CUDA."""

    allocators: tuple[AllocatorUse, ...]
    host: HostUse

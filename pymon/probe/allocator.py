"""What torch's CUDA caching allocator says of each device that this process uses.

Read in the training thread at a step's end, at most once a second, and only where CUDA is up: nothing here brings it
up. Nothing is reset either: a peak is the one that the user sees, since the start or since they reset it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

# Where `torch._C._cuda_memoryStats` has each value (the names of torch.cuda.memory_stats, unflattened).
_BYTES = {
    "allocated_bytes": ("allocated_bytes", "current"),
    "reserved_bytes": ("reserved_bytes", "current"),
    "active_bytes": ("active_bytes", "current"),
    "allocated_peak_bytes": ("allocated_bytes", "peak"),
    "reserved_peak_bytes": ("reserved_bytes", "peak"),
}
_NATIVE_ONLY = {
    "inactive_split_bytes": ("inactive_split_bytes", "current"),
    "requested_bytes": ("requested_bytes", "current"),
    "segments": ("segment", "current"),
}
_NATIVE_COUNTERS = {
    "alloc_retries_total": "num_alloc_retries",
    "ooms_total": "num_ooms",
    "device_allocs_total": "num_device_alloc",
    "device_frees_total": "num_device_free",
}
_ASYNC = "cudaMallocAsync"  # it leaves all but _BYTES at 0 (c10/cuda/CUDAMallocAsyncAllocator.cpp)
# Another is a torch.cuda.memory.CUDAPluggableAllocator, which has no figures.
_KNOWN = ("native", _ASYNC)


class Allocator:
    """One per process. `native` is `pymon.native._probe`; `warn` takes one line for the user."""

    def __init__(self, native: Any, warn: Callable[[str], None]) -> None:
        self._native, self._warn = native, warn
        self._torch: Any = None  # None also after a fault: it would come again each second
        self._is_native = False
        self._devices: dict[int, tuple[str, int]] = {}  # uuid and bytes of memory

    def install(self, torch: Any) -> None:
        """Right after torch has been imported; one without CUDA never says that it is up."""
        self._torch = torch

    def look(self) -> None:
        """Training thread, after a step, once a second at most. Never raises."""
        torch = self._torch
        if torch is None:
            return
        try:
            if torch.cuda.is_initialized() and not torch._C._cuda_isCurrentStreamCapturing():
                self._look(torch)
        except Exception as err:  # noqa: BLE001 - the border to somebody's training
            self._torch = None
            self._warn(f"the CUDA allocator is not watched: {type(err).__name__}: {err}")

    def _look(self, torch: Any) -> None:
        if not self._devices:
            backend = torch._C._cuda_getAllocatorBackend()
            if backend not in _KNOWN:
                self._torch = None
                return
            self._is_native = backend != _ASYNC
        has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
        for device in range(torch.cuda.device_count()):
            if has_context is None or has_context(device):
                self._note(torch, device)

    def _note(self, torch: Any, device: int) -> None:
        stats = torch._C._cuda_memoryStats(device)
        if not stats["reserved_bytes"]["all"]["peak"]:
            return  # not used here, or past the cache (PYTORCH_NO_CUDA_MEMORY_CACHING)
        if device not in self._devices:
            self._devices[device] = _device(torch, device)
        uuid, total_bytes = self._devices[device]
        values = _values(stats, self._is_native)
        if total_bytes:
            values["device_memory_bytes"] = total_bytes
        self._native.note_allocator(device, uuid, values)


def _values(stats: Mapping[str, Any], is_native: bool) -> dict[str, int]:
    """What this torch and this allocator have of the page's values."""
    places = {**_BYTES, **_NATIVE_ONLY} if is_native else _BYTES
    values = {}
    for name, (of, which) in places.items():
        if (found := stats.get(of)) is not None:
            values[name] = found["all"][which]
    if is_native:
        for name, key in _NATIVE_COUNTERS.items():
            if (count := stats.get(key)) is not None:
                values[name] = count
    return values


def _device(torch: Any, device: int) -> tuple[str, int]:
    """Its uuid as NVML has it, which is not the same for a part of a GPU; empty and 0 where torch does not tell."""
    with contextlib.suppress(Exception):
        properties = torch.cuda.get_device_properties(device)
        uuid = str(getattr(properties, "uuid", "")) if torch.version.cuda else ""
        is_whole = uuid and "MIG" not in properties.name
        return f"GPU-{uuid}" if is_whole else "", int(properties.total_memory)
    return "", 0

"""Memory of a GPU or of a MIG instance."""

from __future__ import annotations

from typing import Any, Final

import pynvml

from pymon.model.gpu import GpuMemory
from pymon.sources.nvml.device import Device

_UNKNOWN: Final = (0, 2**64 - 1)  # NVML_VALUE_NOT_AVAILABLE


def read(device: Device, handle: Any, key: int | None = None) -> GpuMemory | None:
    """By the second version, which tells reserved from used; else by the first, which counts both as used.

    None where the GPU has no memory of its own. Raises DriverAway and GpuGone.
    """
    name = "nvmlDeviceGetMemoryInfo"
    found = device.ask_as((name, "v2", key), name, handle, pynvml.nvmlMemory_v2)
    reserved = None if found is None else int(found.reserved)
    if found is None:
        found = device.ask_as((name, "v1", key), name, handle)
    if found is None or found.total in _UNKNOWN:
        return None
    memory = GpuMemory(int(found.total), int(found.used), int(found.free), reserved)
    return device.plausible.memory(memory)

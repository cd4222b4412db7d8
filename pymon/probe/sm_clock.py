"""One GPU's SM clock by NVML: what it was before a burst of counters locked the clocks, and what it is after.

Asked through ctypes, since the child that asks has no packages; absent where there is no NVML.
"""

from __future__ import annotations

import ctypes
from typing import Any

_SM = 1  # NVML_CLOCK_SM in nvml.h


class SmClock:
    """`uuid` is the GPU's (`GPU-...`); an empty one has no clock."""

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = None
        self._device = ctypes.c_void_p()
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            if uuid and nvml.nvmlInit_v2() == 0:
                name = uuid.encode()
                if nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self._device)) == 0:
                    self._nvml = nvml
        except (OSError, AttributeError):
            return

    def hz(self) -> float | None:
        """Now; None where NVML does not say."""
        if self._nvml is None:
            return None
        mhz = ctypes.c_uint()
        answer = self._nvml.nvmlDeviceGetClockInfo(self._device, _SM, ctypes.byref(mhz))
        return mhz.value * 1e6 if answer == 0 else None

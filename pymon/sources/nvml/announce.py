"""The word of shared memory in which the worker names each call before it makes it.

16 bytes in a memfd: when the call began (CLOCK_MONOTONIC, ns), and what it is: a count, the GPU's index and the
function, or 0 between calls. The time is written first, so that a reader who finds the same word before and after it
has the time of that call.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from typing import Final

NO_GPU: Final = -1  # a call about the driver or all GPUs
SIZE: Final = 16
_COUNT_MASK = 0xFFFFFFFF
_READS_MAX = 4  # a word that changes each time belongs to a worker that is getting on

# Every function of the driver's library that pymon calls, by the names of nvidia-ml-py.
CALLS: Final = (
    "nvmlInit",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetMemoryErrorCounter",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait",
    "nvmlEventSetFree",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
)
_NUMBERS = {name: number for number, name in enumerate(CALLS, 1)}


@dataclass(frozen=True, slots=True)
class Announcement:
    """A call that has not returned yet. `gpu` is NVML's index, NO_GPU for a call about none."""

    gpu: int
    function: str
    began_mono_ns: int


class Page:
    """Both sides of the word: the worker's `begin` and `end`, the daemon's `read`."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, SIZE)
        self._words = memoryview(self._map).cast("Q")  # each is read and written whole
        self._count = 0

    @classmethod
    def create(cls) -> tuple[Page, int]:
        """A new page, and the descriptor that the worker inherits."""
        fd = os.memfd_create("pymon-nvml", os.MFD_CLOEXEC)
        os.ftruncate(fd, SIZE)
        return cls(fd), fd

    def begin(self, gpu: int, function: str) -> int:
        """Names the call that follows; gives the time at which it begins."""
        now_ns = time.monotonic_ns()
        self._count = self._count % _COUNT_MASK + 1
        self._words[0] = now_ns
        self._words[1] = self._count << 32 | (gpu + 1 & 0xFFFF) << 16 | _NUMBERS[function]
        return now_ns

    def end(self) -> None:
        """The call has returned."""
        self._words[1] = 0

    def read(self) -> Announcement | None:
        """What is being called, or None between calls."""
        for _ in range(_READS_MAX):
            what, began_ns = self._words[1], self._words[0]
            if what == 0:
                return None
            if self._words[1] == what:
                number = what & 0xFFFF
                name = CALLS[number - 1] if number <= len(CALLS) else "unknown"
                return Announcement((what >> 16 & 0xFFFF) - 1, name, began_ns)
        return None

    def close(self) -> None:
        """Lets go of the memory."""
        self._words.release()
        self._map.close()

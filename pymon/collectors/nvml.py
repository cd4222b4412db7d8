"""What NVML tells of each GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.model.gpu import DriverState, GpuSection

_NO_GPUS = (DriverState.NO_LIBRARY, DriverState.NO_DRIVER)


@dataclass(frozen=True, slots=True)
class NvmlCollector:
    """Gives one `GpuSection`: every GPU with its state and, where it answers, its readings.

    Source: NVML, asked by a worker process (`pymon.daemon.nvml`); makes no CUDA context.
    Cost: some five NVML calls a GPU and tick, and thirty each ten seconds, in the worker.
    Errors: `SourceAbsent` where there is no driver and never was. A GPU that is lost or hangs, and a driver that went
    away, are no errors: the section says so.
    """

    read: Callable[[], GpuSection]
    name: ClassVar[str] = "nvml"
    interval_s: ClassVar[float] = 1.0
    timeout_s: ClassVar[float] = 2.0

    def collect(self) -> GpuSection:
        """Read every GPU once."""
        section = self.read()
        if section.driver.state in _NO_GPUS and not section.gpus:
            raise SourceAbsent(f"no NVIDIA driver answers: {section.driver.reason}")
        return section

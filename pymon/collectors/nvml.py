"""What NVML tells of each GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceFailed
from pymon.model.gpu import GpuSection
from pymon.sources.nvml import Nvml


@dataclass(frozen=True, slots=True)
class NvmlCollector:
    """Gives one `GpuSection`: utilisation, memory, power and temperature of each GPU.

    Source: NVML, cheap calls only; makes no CUDA context.
    Cost: six NVML calls per GPU.
    Errors: `SourceAbsent` where no driver answers. One lost GPU is not an error: it is named in `unreadable`.
    """

    name: ClassVar[str] = "nvml"
    interval_s: ClassVar[float] = 1.0
    timeout_s: ClassVar[float] = 2.0
    nvml: Nvml = field(default_factory=Nvml)

    def collect(self) -> GpuSection:
        """Read every GPU once."""
        gpus, unreadable = [], []
        for index in range(self.nvml.gpu_count()):
            try:
                gpus.append(self.nvml.read(index))
            except SourceFailed:
                unreadable.append(index)
        return GpuSection(tuple(gpus), tuple(unreadable))

"""The visible list of collectors: each reads one subject of the outside world into its section of the Snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

from pymon.collectors.host import HostCollector
from pymon.collectors.nvml import NvmlCollector
from pymon.collectors.processes import Attached, ProcessesCollector
from pymon.collectors.shm import ShmCollector
from pymon.model.gpu import GpuSection
from pymon.model.snapshot import Section


class Collector(Protocol):
    """One subject. `collect` raises SourceAbsent where it does not exist here, SourceFailed where reading it broke."""

    name: ClassVar[str]
    interval_s: ClassVar[float]
    timeout_s: ClassVar[float]

    def collect(self) -> Section:
        """Read once; may block, since it runs on a thread of its own."""
        ...


def all_collectors(
    attachments: Callable[[], Iterable[Attached]], gpus: Callable[[], GpuSection]
) -> tuple[Collector, ...]:
    """Every collector there is, each with its real source."""
    return (ProcessesCollector(attachments), HostCollector(), ShmCollector(), NvmlCollector(gpus))

"""Room in `/dev/shm`, through which loader workers hand over their batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.model.host import ShmSection
from pymon.sources.shm import SharedMemory


@dataclass(frozen=True, slots=True)
class ShmCollector:
    """Gives one `ShmSection`, in bytes.

    Source: statvfs of /dev/shm.
    Cost: one system call.
    Errors: `SourceAbsent` where there is no /dev/shm, `SourceFailed` where it does not answer.
    """

    name: ClassVar[str] = "shm"
    interval_s: ClassVar[float] = 1.0
    timeout_s: ClassVar[float] = 1.0
    memory: SharedMemory = field(default_factory=SharedMemory)

    def collect(self) -> ShmSection:
        """Read once."""
        usage = self.memory.usage()
        return ShmSection(usage.total_bytes, usage.used_bytes, usage.free_bytes)

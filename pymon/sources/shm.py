"""The shared memory file system, by statvfs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pymon.base.errors import SourceAbsent, SourceFailed


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of a file system; `free_bytes` is what an unprivileged process may still take."""

    total_bytes: int
    used_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Reads one mount. Raises SourceAbsent where it does not exist, SourceFailed where it does not answer."""

    path: Path = Path("/dev/shm")

    def usage(self) -> Usage:
        """As statvfs(3) tells it, in its fragment size."""
        try:
            told = os.statvfs(self.path)
        except FileNotFoundError:
            raise SourceAbsent(f"{self.path} does not exist") from None
        except OSError as err:
            raise SourceFailed(f"{self.path}: {err.strerror}") from None
        unit = told.f_frsize
        return Usage(
            told.f_blocks * unit,
            (told.f_blocks - told.f_bfree) * unit,
            told.f_bavail * unit,
        )

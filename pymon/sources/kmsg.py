"""The kernel's log, from /dev/kmsg: records as they come, never waited for.

A record is `priority,sequence,microseconds,flags;text` (Documentation/ABI/testing/dev-kmsg); each read gives one.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pymon.base.errors import SourceAbsent, SourceFailed

RECORD_MAX_BYTES: Final = 8192  # CONSOLE_EXT_LOG_MAX: what the kernel gives at most
RECORDS_MAX: Final = 2000  # of one reading; the rest waits in the kernel's buffer for the next


@dataclass(frozen=True, slots=True)
class Record:
    """A line that the kernel itself wrote (not a process through /dev/kmsg), and when, in Unix time."""

    text: str
    real_s: float


@dataclass(slots=True)
class KernelLog:
    """Reads what came since it was opened, at the first reading."""

    path: Path = Path("/dev/kmsg")
    overruns_total: int = 0  # times at which records were overwritten before they were read
    _fd: int | None = None

    @classmethod
    def from_fd(cls, fd: int) -> KernelLog:
        """Of a descriptor that gives a record a read."""
        return cls(_fd=fd)

    def records(self) -> Iterator[Record]:
        """The new ones. Raises SourceAbsent where the log may not be read, SourceFailed where reading broke."""
        if self._fd is None:
            self._fd = self._open()
        began_real_s = time.time() - time.monotonic()  # the log's clock is that of CLOCK_MONOTONIC
        for _ in range(RECORDS_MAX):
            try:
                data = os.read(self._fd, RECORD_MAX_BYTES)
            except BlockingIOError:
                return
            except OSError as err:
                if err.errno != errno.EPIPE:
                    raise SourceFailed(f"{self.path}: {err.strerror}") from None
                self.overruns_total += 1
                continue
            if not data:
                return
            if record := parse(data, began_real_s):
                yield record

    def _open(self) -> int:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            text = f"{self.path} needs CAP_SYSLOG (kernel.dmesg_restrict)"
            raise SourceAbsent(text) from None
        except OSError as err:
            raise SourceAbsent(f"{self.path}: {err.strerror}") from None
        try:
            os.lseek(fd, 0, os.SEEK_END)
        except OSError as err:
            os.close(fd)
            raise SourceFailed(f"{self.path}: {err.strerror}") from None
        return fd


def parse(data: bytes, began_real_s: float) -> Record | None:
    """None for what is no record of the kernel's own: its facility, the priority above three bits, is 0."""
    head, _, text = data.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    try:
        priority, microseconds = int(fields[0]), int(fields[2])
    except (IndexError, ValueError):
        return None
    if priority >> 3:
        return None
    return Record(text.split("\n", 1)[0], began_real_s + microseconds / 1e6)

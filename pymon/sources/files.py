"""Small files of `/proc` and `/sys`, read whole, with the three ways in which they are not there told apart."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from pymon.base.errors import SourceAbsent, SourceFailed

MAX_BYTES = (
    4 * 1024 * 1024
)  # mountstats of hundreds of mounts; a bound against what is no such file
_CHUNK_BYTES = 64 * 1024
# The kernel has the file but not the thing: a process that just ended, PSI switched off at boot, a device pulled.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO)
ValueT = TypeVar("ValueT")


class NotPermitted(SourceAbsent):
    """It is there, and this user may not read it."""


def read(path: str) -> str:
    """The whole file; bytes that are no UTF-8 become `\\xff`. Never waits for the other end of a pipe.

    Raises SourceAbsent where it is not there, NotPermitted where it may not be read, SourceFailed on anything else.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            return _all(fd).decode("utf-8", "backslashreplace")
        finally:
            os.close(fd)
    except OSError as err:
        raise as_source_error(path, err) from None


def names(path: str) -> list[str]:
    """What a folder holds, sorted. Raises as `read`; what is listed may be gone when it is looked at."""
    try:
        return sorted(os.listdir(path))
    except OSError as err:
        raise as_source_error(path, err) from None


def number(path: str) -> int:
    """The one integer in the file. Raises as `read`, and SourceFailed where there is none."""
    return parsed(path, lambda text: int(text.strip()))


def parsed(path: str, parse: Callable[[str], ValueT]) -> ValueT:
    """What `parse` makes of the file. Raises as `read`, and SourceFailed where the text is not as expected."""
    text = read(path)
    try:
        return parse(text)
    except (ValueError, IndexError, KeyError, OverflowError) as err:
        raise SourceFailed(f"{path}: not as the kernel writes it: {err!r:.100}") from None


def lines(text: str) -> list[str]:
    """Those that are not empty; by newline alone, since names may hold other things that `splitlines` splits at."""
    return [line for line in text.split("\n") if line]


def keyed(text: str) -> dict[str, int]:
    """Lines of a name and a number, as `memory.stat` has them; other lines are left out."""
    values = {}
    for line in lines(text):
        name, _, value = line.partition(" ")
        if value.strip().isdecimal():
            values[name] = int(value)
    return values


def cpu_list(text: str) -> frozenset[int]:
    """`0-3,8` as the kernel lists processors and nodes. Raises ValueError, also where there would be too many."""
    found: set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < 65536:  # eight times the kernel's own bound (NR_CPUS)
            raise ValueError(part)
        found.update(range(low, high + 1))
    return frozenset(found)


def as_source_error(path: str, err: OSError) -> SourceAbsent | SourceFailed:
    """The error of ours that says what the system's one means here."""
    told = f"{path}: {err.strerror}"
    if err.errno in (errno.EACCES, errno.EPERM):
        return NotPermitted(told)
    return SourceAbsent(told) if err.errno in _GONE else SourceFailed(told)


def _all(fd: int) -> bytes:
    """Until the end: files of /proc give less than is asked for before theirs."""
    data = os.read(fd, _CHUNK_BYTES)
    while len(data) < MAX_BYTES and (more := os.read(fd, _CHUNK_BYTES)):
        data += more
    return data

"""The shared memory file system, by statvfs: the daemon's own, and that of another process's mount namespace."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources import files
from pymon.sources.process import Mount, Processes

_PLACE = "/dev/shm"
# Answered by the kernel itself: a user's FUSE or network mount on the way there could hold us up for good.
_LOCAL = {
    "tmpfs",
    "ramfs",
    "devtmpfs",
    "overlay",
    "rootfs",
    "ext4",
    "xfs",
    "btrfs",
    "zfs",
    "squashfs",
    "erofs",
}
_ON_THE_WAY = ("/", "/dev", _PLACE)


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of a file system; `free_bytes` is what an unprivileged process may still take."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    device: str = ""  # MAJOR:MINOR


@dataclass(frozen=True, slots=True)
class ShmMount:
    """What a process has at /dev/shm; `size_bytes` is that of the mount's options, None where they name none.

    `kinds` are the file systems on the way there, its own last.
    """

    device: str
    kinds: tuple[str, ...]
    size_bytes: int | None

    @property
    def answers_at_once(self) -> bool:
        """Whether asking it cannot wait for a user's or another machine's answer."""
        return _LOCAL.issuperset(self.kinds)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Reads one mount. Raises SourceAbsent where it does not exist, SourceFailed where it does not answer."""

    path: Path = Path(_PLACE)

    def usage(self) -> Usage:
        """As statvfs(3) tells it, in its fragment size."""
        try:
            return _usage(os.statvfs(self.path), os.stat(self.path).st_dev)
        except FileNotFoundError:
            raise SourceAbsent(f"{self.path} does not exist") from None
        except OSError as err:
            raise SourceFailed(f"{self.path}: {err.strerror}") from None


@dataclass(frozen=True, slots=True)
class ProcessMounts:
    """/dev/shm of processes. Raises as `files.read`."""

    processes: Processes = field(default_factory=Processes)

    def find(self, pid: int) -> ShmMount:
        """By /proc/PID/mountinfo, which anyone may read. Where nothing is mounted there: what covers it."""
        way = _way(self.processes.mounts(pid))
        if not way:
            raise SourceAbsent(f"{pid} has nothing at {_PLACE}")
        kinds = tuple(mount.kind for mount in way)
        return ShmMount(way[-1].device, kinds, _size_bytes(way[-1].options))

    def usage(self, pid: int, mount: ShmMount) -> Usage:
        """Through /proc/PID/root, for which the daemon needs the rights of that user or of root.

        No link on the way is followed: it would be resolved in the daemon's own namespace.
        """
        path = f"{self.processes.root}/{pid}/root"
        try:
            with (
                _opened(path, None) as root,
                _opened("dev", root) as dev,
                _opened("shm", dev) as fd,
            ):
                usage = _usage(os.fstatvfs(fd), os.fstat(fd).st_dev)
        except OSError as err:
            raise files.as_source_error(f"{path}{_PLACE}", err) from None
        if usage.device != mount.device:
            raise SourceAbsent(f"{path}{_PLACE} is not what {pid} has mounted there")
        return usage


def _way(mounts: tuple[Mount, ...]) -> list[Mount]:
    """What lies on top at `/`, at `/dev` and at `/dev/shm`, as far as something is mounted there, in this order."""
    numbers = {mount.number for mount in mounts}
    roots = [m for m in mounts if m.point == "/" and m.parent not in numbers - {m.number}]
    way = roots[:1]
    for point in _ON_THE_WAY:
        for _ in mounts:  # one may lie on the other, each hiding the one below it
            below = way[-1].number if way else None
            above = [m for m in mounts if m.parent == below != m.number and m.point == point]
            if not above:
                break
            way = [*(m for m in way if m.point != point), above[0]]
    return way


def _size_bytes(options: tuple[str, ...]) -> int | None:
    """tmpfs shows `size=65536k`, and nothing where it may take its default, half of the memory."""
    for option in options:
        name, _, value = option.partition("=")
        if name == "size" and value.endswith("k") and value[:-1].isdecimal():
            return int(value[:-1]) * 1024
    return None


@contextlib.contextmanager
def _opened(path: str, folder: int | None) -> Iterator[int]:
    """A folder, without the right to read it being needed; /proc/PID/root alone may be a link."""
    follow = 0 if folder is None else os.O_NOFOLLOW
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | follow, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _usage(told: os.statvfs_result, device: int) -> Usage:
    unit = told.f_frsize
    return Usage(
        told.f_blocks * unit,
        (told.f_blocks - told.f_bfree) * unit,
        told.f_bavail * unit,
        f"{os.major(device)}:{os.minor(device)}",
    )

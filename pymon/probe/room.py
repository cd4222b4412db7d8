"""How much disk and memory is free, as the training process sees it.

Files of /proc and /sys, no library.
"""

from __future__ import annotations

import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
_NO_LIMIT_BYTES = 1 << 60  # cgroup v1 writes "no limit" as a number near 2^63


def free_disk_bytes(folder: str) -> int:
    """What an ordinary user may still write on that file system; raises OSError."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def available_memory_bytes(proc: Path = Path("/proc"), root: Path = CGROUP_ROOT) -> int | None:
    """The lesser of MemAvailable and what the cgroup still allows.

    None where neither can be read.
    """
    found = [_meminfo(proc), *_cgroup(proc, root)]
    known = [value for value in found if value is not None]
    return min(known) if known else None


def _meminfo(proc: Path) -> int | None:
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup(proc: Path, root: Path) -> list[int | None]:
    """Head room of this process's cgroup and of each above it, v2 and v1."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    rooms: list[int | None] = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers not in ("", "memory"):
            continue
        base = root / "memory" if controllers else root
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            rooms.append(_room(folder, v1=bool(controllers)))
            if folder == base:
                break
    return rooms


def _room(folder: Path, v1: bool) -> int | None:
    names = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes")
        if v1
        else ("memory.max", "memory.current")
    )
    try:
        limit, used = (int((folder / name).read_text()) for name in names)
        if limit >= _NO_LIMIT_BYTES:
            return None
        stat = dict(line.split()[:2] for line in (folder / "memory.stat").read_text().splitlines())
        return (
            limit - used + int(stat.get("inactive_file", 0))
        )  # page cache that the kernel gives back
    except (OSError, ValueError):
        return None  # "max", or no such file here

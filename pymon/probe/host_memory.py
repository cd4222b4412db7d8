"""The host memory of this process and of its loader workers, read off the training thread.

What the daemon, as another user, may not read: unique memory (USS), who holds what of /dev/shm, and, before Linux 6.2,
descriptors. Resident memory goes with it, so that the page of a process that was killed still tells.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BLOCK_BYTES = 512  # of st_blocks (inode(7))
_SHM = "/dev/shm/"
_WORKER_NAME = b"pt_data_worker"  # torch's own, since 2.6 (torch/utils/data/_utils/worker.py)
_PRIVATE = (b"Private_Clean:", b"Private_Dirty:", b"Private_Hugetlb:")
_DESCRIPTORS_MAX = 4096  # one by one; who has more than that does not tell of /dev/shm
# A tenth of the probe's default budget: what took long comes the more seldom, whatever the process's size.
_MOST_RATIO = 0.001


class HostMemory:
    """One per process. `native` is `pymon.native._probe`; `now_s` a clock that only goes on."""

    def __init__(self, native: Any, now_s: Callable[[], float] = time.monotonic) -> None:
        self._native, self._now_s = native, now_s
        self._paces = (
            _Pace(1.0, _resident),
            _Pace(10.0, _descriptors_and_shm),
            _Pace(60.0, _unique),
        )

    def poll(self) -> None:
        """Sender thread, each tick."""
        for pace in self._paces:
            began_s = self._now_s()
            if began_s < pace.next_s:
                continue
            pace.next_s = began_s + pace.least_s  # also where reading fails
            self._native.note_host(pace.read())
            ended_s = self._now_s()
            pace.next_s = max(began_s + pace.least_s, ended_s + (ended_s - began_s) / _MOST_RATIO)


class _Pace:
    """What is read together, and how often at most."""

    def __init__(self, least_s: float, read: Callable[[], dict[str, int | None]]) -> None:
        self.least_s, self.read, self.next_s = least_s, read, 0.0


def _resident() -> dict[str, int | None]:
    return {"rss_bytes": _rss_bytes("self")}


def _descriptors_and_shm() -> dict[str, int | None]:
    workers = _workers()
    own = _shm_files("self")
    theirs = _each(_shm_files, workers)
    return {
        "descriptors": _descriptors("self"),
        "shm_bytes": None if own is None else sum(own.values()),
        "workers": len(workers),
        "workers_rss_bytes": _sum(_each(_rss_bytes, workers)),
        "workers_descriptors": _sum(_each(_descriptors, workers)),
        "workers_shm_bytes": _bytes_beside(own, theirs),
    }


def _bytes_beside(own: dict[int, int] | None, theirs: list[dict[int, int] | None]) -> int | None:
    """What the workers hold and the trainer does not yet: batches on their way, each once."""
    known = [files for files in theirs if files is not None]
    if own is None or len(known) < len(theirs):
        return None
    held = {inode: size for files in known for inode, size in files.items()}
    return sum(size for inode, size in held.items() if inode not in own)


def _unique() -> dict[str, int | None]:
    return {
        "uss_bytes": _uss_bytes("self"),
        "workers_uss_bytes": _sum(_each(_uss_bytes, _workers())),
    }


def _workers() -> list[str]:
    """Children that multiprocessing knows, those of a forkserver too; asking it for them would reap the dead."""
    module = sys.modules.get("multiprocessing.process")
    found = []
    for process in list(getattr(module, "_children", ())):
        pid = getattr(getattr(process, "_popen", None), "pid", None)
        try:
            if pid is not None and _read(pid, "comm").strip() == _WORKER_NAME:
                found.append(str(pid))
        except OSError:
            continue  # it has ended
    return found


def _each(read: Callable[[str], Any], pids: Iterable[str]) -> list[Any]:
    """Of those that still are."""
    found = []
    for pid in pids:
        try:
            found.append(read(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _read(pid: object, name: str) -> bytes:
    """Unbuffered: the kernel gives a page or less at a time, and the interpreter is free meanwhile."""
    parts = []
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
        while part := file.read(1 << 16):
            parts.append(part)
    return b"".join(parts)


def _rss_bytes(pid: str) -> int | None:
    return int(_read(pid, "statm").split()[1]) * _PAGE_BYTES


def _uss_bytes(pid: str) -> int | None:
    """None before Linux 4.14, and where the kernel's owner forbids it."""
    try:
        rows = [line.split() for line in _read(pid, "smaps_rollup").splitlines()]
    except PermissionError:
        return None
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}/statm"):
            return None
        raise
    return sum(int(row[1]) * 1024 for row in rows if row and row[0] in _PRIVATE)


def _descriptors(pid: str) -> int | None:
    try:
        # Since Linux 6.2 the folder's size is their number.
        path = f"/proc/{pid}/fd"
        return os.stat(path).st_size or len(os.listdir(path))
    except PermissionError:
        return None


def _shm_files(pid: str) -> dict[int, int] | None:
    """Bytes by inode of what it holds there: by a descriptor what is really taken, by a mapping alone its length."""
    try:
        mapped = _mapped_shm(_read(pid, "maps"))
        names = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return None
    if len(names) > _DESCRIPTORS_MAX:
        return None
    for name in names:
        path = f"/proc/{pid}/fd/{name}"
        try:
            # By the link's text first: stat may wait for a file server.
            if os.readlink(path).startswith(_SHM):
                status = os.stat(path)
                mapped[status.st_ino] = status.st_blocks * _BLOCK_BYTES
        except OSError:
            continue  # closed meanwhile
    return mapped


def _mapped_shm(maps: bytes) -> dict[int, int]:
    """Length by inode; searched, not split: a process may have a hundred thousand mappings."""
    wanted, at = b" " + _SHM.encode(), 0
    found: dict[int, int] = {}
    while (at := maps.find(wanted, at)) >= 0:
        fields = maps[maps.rfind(b"\n", 0, at) + 1 : at].split()
        begin, end = (int(one, 16) for one in fields[0].split(b"-"))
        inode = int(fields[4])
        found[inode] = max(found.get(inode, 0), end - begin)
        at += len(wanted)
    return found

"""Sees a process end, and how it ended, without being its parent.

Three ways, none of which is there everywhere: `PIDFD_GET_INFO` (Linux 6.15) once its parent has reaped it, the zombie's
line in `/proc` before that, and nothing: then the answer is `unknown`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pymon.daemon.peers import Peer

UNKNOWN = "unknown"
KILLED = "killed by SIGKILL"
REAP_WAIT_S = 1.0  # launchers wait for their children; whoever takes longer leaves a zombie to read
_POLL_S = 0.05

_SO_PEERPIDFD = 77  # Linux 6.5: the peer itself, even where its pid was given to another since
_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info), in its first size of 64 bytes
_INFO = struct.Struct("QQ11Ii")  # mask, cgroup, pid to fsgid, exit code
_INFO_EXIT = 1 << 3
_STAT_EXIT_CODE = 52 - 3  # field 52 of /proc/pid/stat, counted from the state, which is field 3


@dataclass(frozen=True, slots=True)
class Watch:
    """One process by its pidfd; `pidfd` None where it cannot be watched: another pid namespace, an old kernel."""

    peer: Peer
    pidfd: int | None

    async def dead(self) -> None:
        """Returns when the process ends; never where it cannot be watched."""
        if self.pidfd is None:
            await asyncio.get_running_loop().create_future()
        else:
            await until_readable(self.pidfd)

    async def how(self, grace_s: float) -> str | None:
        """How it ended, asked when its connection has; None where it still lives after `grace_s`."""
        if self.pidfd is None:
            return UNKNOWN
        try:
            await asyncio.wait_for(self.dead(), grace_s)
        except asyncio.TimeoutError:
            return None
        for _ in range(round(REAP_WAIT_S / _POLL_S)):
            if (status := self._status()) is not None:
                return in_words(status)
            if not self._is_zombie():
                break  # reaped, by a kernel that keeps nothing of it
            await asyncio.sleep(_POLL_S)
        return UNKNOWN

    def _status(self) -> int | None:
        """The wait status, as far as the kernel tells it to us."""
        assert self.pidfd is not None
        asked = bytearray(_INFO.pack(_INFO_EXIT, *[0] * 13))
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.pidfd, _GET_INFO, asked)
            mask, *_, status = _INFO.unpack(asked)
            if mask & _INFO_EXIT:
                return int(status)
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name before the last bracket may hold anything.
            line = Path(f"/proc/{self.peer.pid}/stat").read_text("ascii", "replace")
            fields = line.rpartition(")")[2].split()
            status = int(fields[_STAT_EXIT_CODE])
            # Without the right to look, the kernel shows 0 there. The pid is still this process's while it is a zombie.
            if fields[0] == "Z" and (status or self.peer.uid == os.geteuid()) and self._is_zombie():
                return status
        return None

    def _is_zombie(self) -> bool:
        """Whether a process that has ended is not reaped yet."""
        assert self.pidfd is not None
        try:
            signal.pidfd_send_signal(self.pidfd, 0)
        except PermissionError:
            return True
        except OSError:
            return False
        return True


@contextlib.contextmanager
def watching(sock: socket.socket, peer: Peer) -> Iterator[Watch]:
    """Watches the process at the other end of the connection."""
    pidfd = _open(sock, peer.pid)
    try:
        yield Watch(peer, pidfd)
    finally:
        if pidfd is not None:
            os.close(pidfd)


def in_words(status: int) -> str:
    """A wait status as reports show it: `exited`, `exit code 1`, `killed by SIGKILL`."""
    if number := status & 0x7F:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(number).name}"
        return f"killed by signal {number}"
    code = status >> 8 & 0xFF
    return f"exit code {code}" if code else "exited"


async def until_readable(fd: int) -> None:
    """Waits for the descriptor."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _open(sock: socket.socket, pid: int) -> int | None:
    if pid <= 0:
        return None
    with contextlib.suppress(OSError):
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    with contextlib.suppress(OSError):
        return os.pidfd_open(pid)
    return None

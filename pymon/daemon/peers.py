"""Who is at the other end of the agent socket, and what came from there."""

from __future__ import annotations

import array
import os
import socket
import struct
from dataclasses import dataclass

from pymon.link import wire

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED
MAX_FDS = 4  # one is expected; more are taken only to be closed


@dataclass(frozen=True, slots=True)
class Peer:
    """By the kernel, at the moment of the connection. `pid` is 0 where it lies outside our pid namespace."""

    pid: int
    uid: int

    def may_touch(self, uid: int) -> bool:
        """Whether this peer may capture a process of that user: root, the daemon's own user, or the owner."""
        return self.uid in (0, os.geteuid(), uid)


def peer_of(sock: socket.socket) -> Peer:
    """Raises OSError."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """One datagram and the descriptors that rode along, which the caller closes; empty at the end.

    Raises OSError, BlockingIOError among it, and WireError where the datagram was cut, its descriptors then closed.
    """
    space = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
    data, ancillary, flags, _ = sock.recvmsg(wire.MAX_MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, raw in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        close_all(list(fds))
        raise wire.WireError("datagram or descriptors beyond the bounds")
    return data, list(fds)


def close_all(fds: list[int]) -> None:
    """Closes descriptors that nobody will use."""
    for fd in fds:
        os.close(fd)

"""Where the agent's socket is, and a connection to it. Standard library only: the probe loads this.

Order (design §3): `PYMON_SOCKET` alone where it is set, else `/run/pymon/agent.sock`, else
`$XDG_RUNTIME_DIR/pymon/agent.sock`. Whoever owns the socket sees the page and orders captures, so
it must belong to root or to us; below `/run`, where only root makes folders, also to whom root gave
`/run/pymon`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

ENV = "PYMON_SOCKET"
SYSTEM_SOCKET = Path("/run/pymon/agent.sock")
MAX_ADDRESS_BYTES = 107  # sun_path of Linux is 108 bytes, one of them the closing zero
FIND_TIMEOUT_S = (
    1.0  # a living daemon accepts at once; a backlog full for longer is no daemon to use
)


def candidates() -> list[Path]:
    """Every place where a daemon of this user may listen, best first; none of them need exist."""
    if chosen := os.environ.get(ENV):
        return [Path(chosen)]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return [SYSTEM_SOCKET, *([Path(runtime, "pymon", "agent.sock")] if runtime else [])]


def find() -> Path | None:
    """The first candidate that answers a connection; None where no daemon does."""
    for path in candidates():
        with contextlib.suppress(OSError):
            connect(path, FIND_TIMEOUT_S).close()
            return path
    return None


def connect(path: str | Path, timeout_s: float) -> socket.socket:
    """A SOCK_SEQPACKET connection with that timeout on it.

    Raises OSError: FileNotFoundError or ConnectionRefusedError where no daemon listens,
    TimeoutError where it does not accept, PermissionError where the socket belongs to somebody who
    is not to be trusted.
    """
    path = Path(path)
    trusted = _trusted_uids(path)
    owner_uid = path.stat().st_uid
    if owner_uid not in trusted:
        raise PermissionError(
            f"{path} belongs to uid {owner_uid}, neither root nor uid {os.geteuid()}"
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(timeout_s)
        with address(path) as short:
            sock.connect(short)
        listener_uid = peer_uid(sock)
        if listener_uid not in trusted:
            raise PermissionError(
                f"uid {listener_uid} listens on {path}, neither root nor uid {os.geteuid()}"
            )
    except BaseException:
        sock.close()
        raise
    return sock


def peer_uid(sock: socket.socket) -> int:
    """Who is at the other end, by the kernel (SO_PEERCRED); raises OSError."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid


@contextlib.contextmanager
def address(path: Path) -> Iterator[str]:
    """The path as bind and connect take it.

    One too long for sun_path goes by way of its folder's descriptor.
    Raises OSError where the folder cannot be opened.
    """
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _trusted_uids(path: Path) -> set[int]:
    trusted = {0, os.geteuid()}
    if path == SYSTEM_SOCKET:
        with contextlib.suppress(OSError):
            trusted.add(path.parent.stat().st_uid)
    return trusted

"""Where the agent socket is made, and how its name is taken."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from pymon.base.errors import PymonError
from pymon.link import socket as agent

LOCK_WAIT_S = 2.0  # for another daemon that starts in the same folder


def listen(path: Path, mode: int) -> socket.socket:
    """A listening socket at `path`. A name that a dead daemon left is taken over. Raises PymonError."""
    with _alone_in(path.parent):
        _refuse_taken(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            with agent.address(path) as short:
                sock.bind(short)
            path.chmod(mode)
            sock.listen(128)
        except OSError as err:
            sock.close()
            raise PymonError(
                f"cannot listen at {path}: {err.strerror}; choose another with --socket PATH"
            ) from None
    sock.setblocking(False)
    return sock


def _refuse_taken(path: Path) -> None:
    with contextlib.suppress(OSError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise PymonError(f"{path} is there and no socket; choose another with --socket PATH")
    try:
        agent.connect(path, agent.FIND_TIMEOUT_S).close()
    except (FileNotFoundError, ConnectionRefusedError):
        pass
    except OSError as err:
        raise PymonError(f"{path} is taken by something else: {err}") from None
    else:
        raise PymonError(f"a daemon is running already at {path}; `pymon status` asks it")


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other daemon takes a name here meanwhile: two that start at once must not both find it free.

    Whoever holds the lock for long, or has no right to it, is not waited for.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield  # bind says what is wrong with the folder
        return
    try:
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        yield
    finally:
        os.close(lock)


def default_path() -> Path:
    """`/run/pymon/agent.sock` where it can be had, else below `$XDG_RUNTIME_DIR`. Raises PymonError."""
    folder = agent.SYSTEM_SOCKET.parent
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o755, exist_ok=True)
    if os.access(folder, os.W_OK):
        return agent.SYSTEM_SOCKET
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        own = Path(runtime, "pymon")
        with contextlib.suppress(OSError):
            own.mkdir(mode=0o700, exist_ok=True)
        if os.access(own, os.W_OK):
            return own / "agent.sock"
    raise PymonError(
        f"{folder} cannot be written and XDG_RUNTIME_DIR gives no other place; "
        f"create it for this user (mkdir -m 755 {folder}; chown) or use --socket PATH"
    )

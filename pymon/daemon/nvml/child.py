"""One worker process. It is never waited for: a process inside a driver that hangs outlives even SIGKILL."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pymon.sources.nvml import wire
from pymon.sources.nvml.announce import Announcement, Page

ENDING_S = 0.05  # from the close of a dying process' files to its end
Kill = Callable[[int], None]
_MODULE = "pymon.sources.nvml.worker"


def kill_now(pid: int) -> None:
    """SIGKILL, which a process in uninterruptible sleep obeys when its call returns, if ever."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


class ChildEnded(Exception):
    """The process is gone, or has closed its socket."""


@dataclass(slots=True)
class Child:
    """A worker and its two lines to us: the socket, and the page that names the call it is in."""

    process: subprocess.Popen[bytes]
    sock: socket.socket
    page: Page
    buffer: memoryview = field(
        default_factory=lambda: memoryview(bytearray(wire.MAX_MESSAGE_BYTES))
    )
    given_up_s: float | None = None
    stuck_at: int | None = None  # the GPU whose call it hangs in, or EVENTS

    @classmethod
    def start(cls, library: str = "") -> Child:
        """Raises OSError where no process can be had."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        page, fd = Page.create()
        try:
            numbers = map(str, (os.getpid(), theirs.fileno(), fd))
            command = [sys.executable, "-m", _MODULE, *numbers]
            process = subprocess.Popen(
                [*command, library] if library else command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the daemon's own says when it is ready
                pass_fds=(theirs.fileno(), fd),
                cwd="/",  # which `-m` puts first in the module path
                env={**os.environ, "PYMON": "0"},  # it is no training process
            )
        except BaseException:
            ours.close()
            page.close()
            raise
        finally:
            theirs.close()
            os.close(fd)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wire.MAX_MESSAGE_BYTES)
        ours.setblocking(False)
        return cls(process, ours, page)

    def send(self, order: wire.Sweep) -> None:
        """Raises ChildEnded."""
        try:
            self.sock.send(wire.encode(order), socket.MSG_NOSIGNAL)
        except OSError as err:
            raise ChildEnded(str(err)) from None

    def receive(self, timeout_s: float) -> wire.Message | None:
        """The next message, or None after the time. Raises ChildEnded."""
        ready, _, _ = select.select([self.sock], [], [], max(0.0, timeout_s))
        if not ready:
            return None
        try:
            size = self.sock.recv_into(self.buffer)
        except OSError as err:
            raise ChildEnded(str(err)) from None
        if size == 0:
            raise ChildEnded("its socket is closed")
        try:
            return wire.decode(self.buffer[:size])
        except msgspec.MsgspecError as err:
            raise ChildEnded(f"it talks nonsense: {err}") from None

    def calling(self) -> Announcement | None:
        """The call that it is in."""
        return self.page.read()

    def give_up(self, kill: Kill, stuck_at: int | None = None) -> None:
        """Kills it and lets go of the lines; `is_gone` may stay False for ever."""
        self.given_up_s, self.stuck_at = time.monotonic(), stuck_at
        kill(self.process.pid)
        self.sock.close()

    def is_runnable(self) -> bool:
        """Whether it wants a processor and may just not have got one: then it sleeps in no call."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text(
                encoding="ascii", errors="replace"
            )
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[:1] == ["R"]

    def is_gone(self) -> bool:
        """Whether the process has ended; never waits."""
        return self.process.poll() is not None

    def how_it_ended(self) -> str:
        """For people: the signal or exit code. Its socket is closed, so that it is all but gone."""
        until_s = time.monotonic() + ENDING_S
        while (code := self.process.poll()) is None and time.monotonic() < until_s:
            time.sleep(0.002)
        if code is None:
            return "ended"
        return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

"""The thread that talks to the daemon: hands the page over, takes capture orders, gives receipts.

Training never waits for it. It sleeps in `poll`, sends without blocking, and comes back within two seconds of a
daemon's restart; the page goes on counting meanwhile.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from pymon.link import socket as agent
from pymon.link import wire
from pymon.probe import identity

RETRY_S = 1.0  # design: connected within 2 s of a daemon's start
REJECTED_RETRY_S = 60.0  # a daemon that refuses this page will do so again
CONNECT_TIMEOUT_S = 0.5
TICK_MS = 500  # how late a receipt may leave


class Sender(threading.Thread):
    """`fd` is the page's memfd, borrowed; `captures` obeys orders, `budget` the switch; `each_tick` runs about twice a
    second.
    """

    def __init__(
        self, attach_id: str, fd: int, captures: Any, budget: Any, each_tick: Callable[[], None]
    ) -> None:
        super().__init__(name="pymon-sender", daemon=True)
        self._attach_id, self._fd, self._captures = attach_id, fd, captures
        self._budget, self._tick = budget, each_tick
        self._pid = os.getpid()
        self._socket: socket.socket | None = None
        self._receipts: list[wire.Receipt] = []  # not delivered yet
        self._wake = threading.Event()
        os.register_at_fork(after_in_child=self._forget_in_child)

    def run(self) -> None:
        """Until the process ends."""
        while os.getpid() == self._pid:
            wait_s = RETRY_S
            try:
                self._each_tick()
                sock = self._connect()
                if sock is not None:
                    wait_s = self._serve(sock)
            except Exception:  # noqa: BLE001 - nothing of the daemon's may reach training; the next try is a fresh one
                wait_s = RETRY_S
            self._close()
            self._pause(wait_s)

    def _pause(self, wait_s: float) -> None:
        """The ticks go on, whatever the daemon said."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            self._wake.wait(min(left_s, TICK_MS / 1000))
            with contextlib.suppress(Exception):
                self._each_tick()

    def _connect(self) -> socket.socket | None:
        for path in agent.candidates():
            try:
                sock = agent.connect(path, CONNECT_TIMEOUT_S)
            except OSError:
                continue
            self._socket = sock
            sock.setblocking(False)
            fds = array.array("i", [self._fd]).tobytes()
            sock.sendmsg(
                [wire.encode(identity.hello(self._attach_id))],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)],
                socket.MSG_NOSIGNAL,
            )
            return sock
        return None

    def _serve(self, sock: socket.socket) -> float:
        """Until the daemon is gone; gives how long to wait before the next try."""
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        while True:
            if poller.poll(TICK_MS):
                data = sock.recv(wire.MAX_MESSAGE_BYTES)
                if not data:
                    return 0.0 if self._receipts else RETRY_S
                message = wire.decode(data)
                if isinstance(message, wire.Reject):
                    return REJECTED_RETRY_S
                if isinstance(message, wire.Welcome):
                    self._budget.tell(message.armed, message.budget_ratio)
                if isinstance(message, wire.CaptureOrder | wire.CountersOrder):
                    self._obey(message)
            self._each_tick()
            self._receipts += self._captures.poll()
            while self._receipts:
                sock.send(wire.encode(self._receipts[0]), socket.MSG_NOSIGNAL)
                self._receipts.pop(0)

    def _each_tick(self) -> None:
        self._budget.tick()
        if self._budget.armed:
            self._tick()

    def _obey(self, order: wire.CaptureOrder | wire.CountersOrder) -> None:
        if self._budget.armed:
            refusal = self._captures.accept(order)
        else:
            refusal = wire.Receipt(order.capture_id[:64], "refused", "pymon is disarmed here")
        if refusal is not None:
            self._receipts.append(refusal)

    def _close(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def _forget_in_child(self) -> None:
        """The parent's connection is not the child's: holding it would hide the parent's death."""
        if os.getpid() != self._pid:
            self._close()

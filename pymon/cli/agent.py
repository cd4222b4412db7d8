"""A command's talk with a daemon: one request, its progress lines, its last reply."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

from pymon.base.errors import PymonError
from pymon.link import socket as agent
from pymon.link import wire

CONNECT_S = 2.0  # a living daemon accepts at once


class NoDaemon(PymonError):
    """Nobody answers there."""


def find() -> Path:
    """The node's daemon, or that of PYMON_SOCKET; raises NoDaemon with what to do."""
    path = agent.find()
    if path is None:
        places = ", ".join(map(str, agent.candidates()))
        raise NoDaemon(f"no daemon answers at {places}; start one with `pymon daemon`")
    return path


def ask(
    path: Path, request: wire.Request, on_line: Callable[[str], None] = lambda line: None
) -> wire.Reply:
    """The last reply; the lines before it go to `on_line`.

    Raises NoDaemon where nobody answers, PymonError where the daemon refuses (with its reason),
    says nothing within the request's `timeout_s`, or goes away.
    """
    try:
        sock = agent.connect(path, CONNECT_S)
    except OSError as err:
        raise NoDaemon(f"no daemon answers at {path}: {err}") from None
    with sock:
        try:
            sock.send(wire.encode(request))
            return _last_reply(sock, time.monotonic() + request.timeout_s, on_line)
        except TimeoutError:
            raise PymonError(f"the daemon did not answer within {request.timeout_s:g} s") from None
        except (OSError, wire.WireError) as err:
            raise PymonError(f"the talk with the daemon at {path} broke off: {err}") from None


def _last_reply(
    sock: socket.socket, deadline_s: float, on_line: Callable[[str], None]
) -> wire.Reply:
    while True:
        sock.settimeout(max(0.001, deadline_s - time.monotonic()))
        data = sock.recv(wire.MAX_MESSAGE_BYTES + 1)
        if not data:
            raise wire.WireError("the daemon closed the connection")
        reply = wire.decode(data)
        if isinstance(reply, wire.Reject):
            raise PymonError(reply.reason)
        if not isinstance(reply, wire.Reply):
            raise wire.WireError("an answer of another kind")
        if not reply.ok:
            raise PymonError(reply.text or "the daemon refused, and gave no reason")
        if reply.last:
            return reply
        if reply.text:
            on_line(reply.text)

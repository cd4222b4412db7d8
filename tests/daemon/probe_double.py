"""A probe as the agent socket sees it: a connection, a page made by hand, and what it says."""

import asyncio
import contextlib
import os
import socket

from pymon.daemon.agent import AgentServer, Handlers
from pymon.link import wire
from tests.link import page_peer

ATTACH_ID = bytes(range(16)).hex()  # of the pages that page_peer makes


class Heard:
    """Handlers that remember."""

    def __init__(self):
        self.attached, self.ended, self.receipts, self.requests = [], [], [], []
        self.handlers = Handlers(
            attached=self.attached.append,
            ended=self.ended.append,
            receipt=lambda attach_id, receipt: self.receipts.append((attach_id, receipt)),
            request=self._answer,
        )

    async def _answer(self, peer, request):
        self.requests.append((peer, request))
        yield wire.Reply(text="on it")
        yield wire.Reply(last=True, body={"command": request.command})


@contextlib.asynccontextmanager
async def serving(path):
    """An agent server at `path`, and what it heard."""
    heard = Heard()
    server = AgentServer(heard.handlers)
    server.start(path, 0o600)
    try:
        yield server, heard
    finally:
        await server.stop()


class Client:
    """One connection to the server; use it on the server's loop."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(str(path))
        self.sock.setblocking(False)

    def send(self, message, fds=()):
        data = message if isinstance(message, bytes) else wire.encode(message)
        socket.send_fds(self.sock, [data], list(fds))

    def hello(self, attach_id=ATTACH_ID, pages=1, content=None):
        """Introduces itself with so many pages."""
        fds = [
            page_peer.memfd(content=page_peer.header() if content is None else content)
            for _ in range(pages)
        ]
        self.send(wire.Hello(attach_id, os.getpid(), rank=3), fds)
        for fd in fds:
            os.close(fd)

    async def hear(self):
        """The next message; None at the end of the connection."""
        loop = asyncio.get_running_loop()
        data = await asyncio.wait_for(loop.sock_recv(self.sock, wire.MAX_MESSAGE_BYTES), 5)
        return wire.decode(data) if data else None

    def close(self):
        self.sock.close()


async def until(condition):
    """Waits for what the loop is about to do."""
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come within 5 s")

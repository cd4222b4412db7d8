"""The agent socket: probes hand over their pages and obey capture orders, commands ask.

One SOCK_SEQPACKET listener on the event loop, nothing of it blocking. A peer is believed nothing but what the kernel
says of it; whatever it sends wrong costs its own connection only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymon.daemon.death import KILLED, UNKNOWN, Watch, in_words, until_readable, watching
from pymon.daemon.listener import listen
from pymon.daemon.oom import LOOK_S, OomWatch
from pymon.daemon.peers import Peer, close_all, peer_of, receive
from pymon.link import wire
from pymon.link.page import PageError, PageReader

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 512  # 8 GPUs with many ranks each, and commands; a bound against floods
MAX_PER_UID = 256
HELLO_TIMEOUT_S = 5.0
SEND_TIMEOUT_S = 5.0  # a command that does not read its answer
REPLACED = "replaced by exec"
RECONNECT_S = 3.0  # a probe tries again every two seconds: it has not ended before that
PARENT_S = 1.0  # `pymon run` waits for its child, and tells at once
WORDS_MAX = 512  # of parents: many times the connections that come at once
PAUSE_S = 0.05  # after each message of a trainer: it has one receipt to send for each order, and a flood must wait


@dataclass(slots=True)
class Attachment:
    """A trainer that is connected, or was: the page outlives its writer."""

    hello: wire.Hello
    peer: Peer
    page: PageReader
    sock: socket.socket | None  # None once it is gone
    loop: asyncio.AbstractEventLoop
    ended: str | None = None
    dropped: str = ""  # why its page is believed no more
    evidence: tuple[str, ...] = ()  # of how it ended

    @property
    def pid(self) -> int:
        """By the kernel where it can see the process, else as the trainer says (another pid namespace)."""
        return self.peer.pid or self.hello.pid

    @property
    def host_pid(self) -> int | None:
        """By the kernel alone, in the daemon's pid namespace; None where it lies outside."""
        return self.peer.pid or None

    @property
    def uid(self) -> int:
        """Whose process it is, by the kernel."""
        return self.peer.uid

    def drop(self, why: str) -> None:
        """Lets the connection go, and tells the probe why; from any thread."""
        self.loop.call_soon_threadsafe(self._let_go, why)

    def _let_go(self, why: str) -> None:
        if self.sock is None or self.dropped:
            return
        self.dropped = why
        with contextlib.suppress(OSError):
            self.sock.send(wire.encode(wire.Reject(why[: wire.MAX_TEXT])), socket.MSG_NOSIGNAL)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for a receipt


@dataclass(slots=True)
class Handlers:
    """What the rest of the daemon does with what comes in; all are called on the loop."""

    attached: Callable[[Attachment], None]
    ended: Callable[[Attachment], None]
    receipt: Callable[[str, wire.Receipt], None]
    request: Callable[[Peer, wire.Request], AsyncIterator[wire.Reply]]
    welcome: Callable[[wire.Hello, Peer], wire.Welcome] = lambda hello, peer: wire.Welcome()


@dataclass(slots=True)
class AgentServer:
    """`clients` counts probes and holds: what a private daemon lives for."""

    handlers: Handlers
    oom: OomWatch = field(default_factory=OomWatch)
    attachments: dict[str, Attachment] = field(default_factory=dict)  # by attach id, living ones
    refused_total: int = 0
    pages_refused_total: int = 0
    clients: int = 0
    clients_total: int = 0
    # Bounded, since nobody takes them where the collector of processes is switched off.
    _gone: deque[Attachment] = field(default_factory=lambda: deque(maxlen=MAX_CONNECTIONS))
    _listener: socket.socket | None = None
    _path: Path | None = None
    _inode: int = 0
    _words: dict[tuple[int, str, int], asyncio.Future[int]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _live: Counter[int] = field(default_factory=Counter)

    def start(self, path: Path, mode: int) -> None:
        """Listens at `path`. Raises PymonError where that cannot be had."""
        self._listener = listen(path, mode)
        self._path, self._inode = path, path.stat().st_ino
        self._keep(self._accept(self._listener))
        self._keep(self._look_at_groups())

    async def stop(self) -> None:
        """Closes everything; the socket's name goes away."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                if (
                    self._path.stat().st_ino == self._inode
                ):  # else another daemon has taken the name
                    self._path.unlink()

    def welcome_again(self) -> None:
        """Tells every trainer what holds for it now."""
        for attach_id, attachment in list(self.attachments.items()):
            self.send(attach_id, self.handlers.welcome(attachment.hello, attachment.peer))

    def send(
        self, attach_id: str, order: wire.CaptureOrder | wire.CountersOrder | wire.Welcome
    ) -> bool:
        """Gives an order to a trainer; False where it is gone or does not read."""
        attachment = self.attachments.get(attach_id)
        if attachment is None or attachment.sock is None:
            return False
        try:
            attachment.sock.send(wire.encode(order), socket.MSG_NOSIGNAL)
        except (OSError, wire.WireError):
            return False
        return True

    @property
    def someone_ended(self) -> bool:
        """Whether a process ended that `seen` has not given yet."""
        return bool(self._gone)

    def seen(self) -> list[Attachment]:
        """Those that live, and those that ended since the last call; may be called from another thread."""
        gone = [self._gone.popleft() for _ in range(len(self._gone))]
        return [*gone, *list(self.attachments.values())]

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at_groups(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self.oom.look)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError:  # out of descriptors: let some close
                await asyncio.sleep(0.1)
                continue
            try:
                peer = peer_of(sock)
            except OSError:
                sock.close()
                continue
            if self._live.total() >= MAX_CONNECTIONS or self._live[peer.uid] >= MAX_PER_UID:
                self.refused_total += 1
                sock.close()
                continue
            self._live[peer.uid] += 1
            self._keep(self._connection(sock, peer))

    async def _connection(self, sock: socket.socket, peer: Peer) -> None:
        fds: list[int] = []
        try:
            data, fds = await asyncio.wait_for(_receive(sock), HELLO_TIMEOUT_S)
            message = wire.decode(data)
            if isinstance(message, wire.Hello):
                await self._probe(sock, peer, message, fds)
            elif isinstance(message, wire.Request):
                await self._command(sock, peer, message)
        except (OSError, wire.WireError, asyncio.TimeoutError):
            pass  # the peer's trouble
        finally:
            close_all(fds)
            sock.close()
            self._live[peer.uid] -= 1
            if self._live[peer.uid] <= 0:
                del self._live[peer.uid]

    async def _probe(
        self, sock: socket.socket, peer: Peer, hello: wire.Hello, fds: list[int]
    ) -> None:
        try:
            page = self._open_page(peer, hello, fds)
        except PageError as err:
            self.pages_refused_total += 1
            # A probe asks again once a minute, so this fills no log.
            log.warning("page of pid %d, uid %d refused: %s", peer.pid, peer.uid, err)
            sock.send(wire.encode(wire.Reject(str(err)[: wire.MAX_TEXT])), socket.MSG_NOSIGNAL)
            return
        finally:
            close_all(fds)  # the mapping is all that is needed
            fds.clear()
        welcome = self.handlers.welcome(hello, peer)
        sock.send(wire.encode(welcome), socket.MSG_NOSIGNAL)
        attachment = Attachment(hello, peer, page, sock, asyncio.get_running_loop())
        with watching(sock, peer) as watch:
            await self._attached(sock, attachment, watch)

    async def _attached(self, sock: socket.socket, attachment: Attachment, watch: Watch) -> None:
        attach_id = attachment.hello.attach_id
        self._end_replaced(attachment)
        self.attachments[attach_id] = attachment
        self.clients += 1
        self.clients_total += 1
        self.handlers.attached(attachment)
        self._keep(_in_thread(self.oom.begin, attach_id, attachment.host_pid))
        try:
            await self._listen_to(sock, attachment, watch)
        except (OSError, wire.WireError):
            pass  # whatever it sent: what counts is whether it lives
        finally:
            self.clients -= 1
            attachment.sock = None
            sock.close()
        how = await self._how(attachment, watch)
        self._end(attachment, how or "disconnected")

    def _end(self, attachment: Attachment, how: str) -> None:
        attach_id = attachment.hello.attach_id
        if self.attachments.get(attach_id) is not attachment:
            return  # it connected again, or was replaced
        del self.attachments[attach_id]
        self.oom.forget(attach_id)
        attachment.ended = how
        # Before the collector takes its last look, and closes the page.
        self.handlers.ended(attachment)
        self._gone.append(attachment)

    def _end_replaced(self, new: Attachment) -> None:
        """A process whose page went and that comes with another one has a new image: `exec`."""
        for old in list(self.attachments.values()):
            same = old.host_pid is not None and old.host_pid == new.host_pid and old.uid == new.uid
            if same and old.sock is None and old.hello.attach_id != new.hello.attach_id:
                self._end(old, REPLACED)

    async def _how(self, attachment: Attachment, watch: Watch) -> str | None:
        """How it ended; None where its process may live on."""
        if why := attachment.dropped:
            self.pages_refused_total += 1
            # A probe asks again once a minute, so this fills no log.
            log.warning("page of pid %d, uid %d dropped: %s", attachment.pid, attachment.uid, why)
            return f"page dropped: {why}"
        attach_id = attachment.hello.attach_id
        counts = await asyncio.to_thread(self.oom.at_end, attach_id)
        how = await watch.how(RECONNECT_S)
        if how == UNKNOWN:
            how = await self._word_of_parent(attachment)
        if how in (KILLED, UNKNOWN):
            word = self.oom.word(attach_id, counts, how == KILLED)
            attachment.evidence = word.evidence
            how = f"{how}, out of memory" if word.explains else how
        return how

    async def _word_of_parent(self, attachment: Attachment) -> str:
        """What `pymon run`, whose child it was, says of an end that the kernel does not tell us; else `unknown`."""
        key = (attachment.uid, attachment.hello.run_id, attachment.hello.pid)
        if not attachment.hello.run_id:
            return UNKNOWN
        heard = self._words.setdefault(key, asyncio.get_running_loop().create_future())
        await asyncio.wait({heard}, timeout=PARENT_S)
        return in_words(heard.result()) if heard.done() else UNKNOWN

    def hear(self, peer: Peer, run_id: str, pid: int, wait_status: int) -> None:
        """The parent's word: `pid` in its own pid namespace, of its own user's run."""
        while len(self._words) >= WORDS_MAX:
            del self._words[next(iter(self._words))]
        future = asyncio.get_running_loop().create_future()
        word = self._words.setdefault((peer.uid, run_id, pid), future)
        if not word.done():
            word.set_result(wait_status)

    def _open_page(self, peer: Peer, hello: wire.Hello, fds: list[int]) -> PageReader:
        if len(fds) != 1:
            raise PageError(f"{len(fds)} descriptors came along, one is expected")
        page = PageReader.open(fds[0])
        if page.header.attach_id != hello.attach_id:
            raise PageError("the page belongs to another attach id")
        before = self.attachments.get(hello.attach_id)
        if before is not None and before.uid != peer.uid:
            raise PageError("this attach id belongs to another user")
        return page

    async def _listen_to(self, sock: socket.socket, attachment: Attachment, watch: Watch) -> None:
        """Receipts, until the trainer is gone: by its pidfd, since a forked child may hold the socket open."""
        dead = asyncio.ensure_future(watch.dead())
        try:
            while True:
                arriving = asyncio.ensure_future(_receive(sock))
                try:
                    await asyncio.wait({dead, arriving}, return_when=asyncio.FIRST_COMPLETED)
                    if not arriving.done():
                        return
                    data, fds = arriving.result()
                finally:
                    await _cancelled(arriving)
                close_all(fds)
                if not data:
                    return
                message = wire.decode(data)
                if isinstance(message, wire.Receipt):
                    self.handlers.receipt(attachment.hello.attach_id, message)
                await asyncio.sleep(PAUSE_S)
        finally:
            await _cancelled(dead)

    async def _command(self, sock: socket.socket, peer: Peer, request: wire.Request) -> None:
        if request.command == "hold":
            self.clients += 1
            self.clients_total += 1
            try:
                while (await _receive(sock))[0]:
                    pass
            finally:
                self.clients -= 1
            return
        async for reply in self.handlers.request(peer, request):
            await asyncio.wait_for(_send(sock, _fitting(reply)), SEND_TIMEOUT_S)


def _fitting(reply: wire.Reply) -> bytes:
    try:
        return wire.encode(reply)
    except wire.WireError as err:
        return wire.encode(
            wire.Reply(ok=False, last=reply.last, text=f"the answer is too large: {err}")
        )


async def _in_thread(work: Callable[..., None], *arguments: Any) -> None:
    await asyncio.to_thread(work, *arguments)


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """Waits until it is over: what it watches may be closed and its number given to another only then."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """The next datagram and its descriptors; empty at the end of the connection."""
    while True:
        try:
            return receive(sock)
        except BlockingIOError:
            await until_readable(sock.fileno())


async def _send(sock: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, data)

"""The HTTP side: `/metrics` and the health pages, on the daemon's event loop, with h11 as the parser.

Everything here is bounded before it costs something: connections in all and for one peer, the size of a request, and
the time that each part of it may take, so that hundreds of idle or dripping clients leave scrapes unharmed.
"""

from __future__ import annotations

import asyncio
import gzip
import html
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import h11

from pymon.base.errors import PymonError
from pymon.exporters.prometheus import CONTENT_TYPE

MAX_CONNECTIONS = (
    64  # a few scrapers and people; node_exporter serves 40 requests at once by default
)
MAX_PER_PEER = 16
MAX_REQUEST_BYTES = 16 * 1024
HEAD_TIMEOUT_S = 5.0  # absolute, from the first byte or none on: dripping does not help
IDLE_TIMEOUT_S = (
    65.0  # longer than the usual scrape interval, so that a scraper keeps its connection
)
WRITE_TIMEOUT_S = 10.0
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_LISTEN_BACKLOG = 128


@dataclass(slots=True)
class Pages:
    """What is served. A tick's page is made for the first that wants it: ticks are more than scrapes."""

    version: str
    ready: bool = False
    _render: Callable[[], bytes] | None = None
    _metrics: bytes = b""
    _gzip: bytes | None = None

    def update(self, render: Callable[[], bytes]) -> None:
        """Takes how to make the page of a tick that has ended."""
        self._render, self.ready = render, True

    @property
    def metrics(self) -> bytes:
        """The newest tick's page, made once; empty where it could not be."""
        if self._render is not None:
            render, self._render, self._gzip = self._render, None, None
            self._metrics = render()
        return self._metrics

    @property
    def metrics_gzip(self) -> bytes:
        """The page packed at level 1: 4 % of the time buys most of the size."""
        page = self.metrics
        if self._gzip is None:
            self._gzip = gzip.compress(page, 1)
        return self._gzip


@dataclass(frozen=True, slots=True)
class Response:
    """Status, headers and body of an answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/plain; charset=utf-8"),)


@dataclass(slots=True)
class HttpServer:
    """Serves `pages`; `refused_total` counts connections beyond the caps."""

    pages: Pages
    refused_total: int = 0
    _live: Counter[str] = field(default_factory=Counter)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _listener: socket.socket | None = None
    _loopback_only: bool = True

    async def start(self, host: str, port: int) -> str:
        """Listens; gives the URL. Raises PymonError where the address cannot be had."""
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family, backlog=_LISTEN_BACKLOG)
        except OSError as err:
            raise PymonError(
                f"cannot listen on {host}:{port}: {err.strerror or err}; "
                "choose another with --http HOST:PORT, or --http off"
            ) from None
        listener.setblocking(False)
        self._listener = listener
        self._loopback_only = host in _LOOPBACK or host.startswith("127.")
        self._keep(asyncio.get_running_loop().create_task(self._accept(listener)))
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{listener.getsockname()[1]}"

    async def stop(self) -> None:
        """Closes the listener and every connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError:  # out of descriptors: let some close
                await asyncio.sleep(0.1)
                continue
            peer = str(address[0])
            if self._live.total() >= MAX_CONNECTIONS or self._live[peer] >= MAX_PER_PEER:
                self.refused_total += 1
                sock.close()
                continue
            # asyncio leaves this to sockets that it made; without it answers wait 40 ms for an ACK.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._live[peer] += 1
            self._keep(loop.create_task(self._connection(sock, peer)))

    async def _connection(self, sock: socket.socket, peer: str) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=sock, limit=MAX_REQUEST_BYTES)
            try:
                await self._converse(reader, writer)
            finally:
                writer.transport.abort()
        except (OSError, asyncio.TimeoutError, h11.RemoteProtocolError, h11.LocalProtocolError):
            pass  # the peer's trouble: it costs this connection only
        finally:
            self._live[peer] -= 1
            if self._live[peer] <= 0:
                del self._live[peer]
            sock.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST_BYTES)
        first = True
        while True:
            wait_s = HEAD_TIMEOUT_S if first else IDLE_TIMEOUT_S
            first = False
            request = await asyncio.wait_for(_request(connection, reader), wait_s)
            if request is None:
                return
            answer = self._answer(request)
            head = h11.Response(
                status_code=answer.status,
                headers=[
                    *answer.headers,
                    ("Content-Length", str(len(answer.body))),
                    ("X-Content-Type-Options", "nosniff"),
                    ("Cache-Control", "no-store"),
                ],
            )
            body = b"" if request.method == b"HEAD" else answer.body
            events = [head, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
            writer.write(b"".join(connection.send(event) or b"" for event in events))
            await asyncio.wait_for(writer.drain(), WRITE_TIMEOUT_S)
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()

    def _answer(self, request: h11.Request) -> Response:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers
        }
        if self._loopback_only and _hostname(headers.get("host", "")) not in _LOOPBACK:
            # A name that some page made point at loopback (DNS rebinding).
            return Response(421, b"this address serves localhost only\n")
        page = _ROUTES.get(request.target.split(b"?")[0])
        if page is None:
            return Response(404, b"not found\n")
        if request.method not in (b"GET", b"HEAD"):
            return Response(405, b"only GET and HEAD\n", (("Allow", "GET, HEAD"),))
        return page(self.pages, headers)


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The next request, its body read and thrown away; None at the end of the connection."""
    request: h11.Request | None = None
    left = MAX_REQUEST_BYTES
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(MAX_REQUEST_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            left -= len(event.data)
            if left < 0:
                return None
        elif isinstance(event, h11.EndOfMessage):
            return request
        else:
            return None


def _hostname(host: str) -> str:
    host = host.strip()
    if host.startswith("["):
        return host[1:].split("]")[0].lower()
    return host.rsplit(":", 1)[0].lower()


def _metrics(pages: Pages, headers: dict[str, str]) -> Response:
    if not pages.ready:
        return Response(503, b"no tick has ended yet\n")
    if not pages.metrics:
        return Response(500, b"the page could not be made; the daemon's log says why\n")
    kind = ("Content-Type", CONTENT_TYPE)
    if "gzip" in headers.get("accept-encoding", ""):
        return Response(200, pages.metrics_gzip, (kind, ("Content-Encoding", "gzip")))
    return Response(200, pages.metrics, (kind,))


def _healthy(pages: Pages, headers: dict[str, str]) -> Response:
    return Response(200, b"ok\n")


def _ready(pages: Pages, headers: dict[str, str]) -> Response:
    return Response(200, b"ok\n") if pages.ready else Response(503, b"no tick has ended yet\n")


def _landing(pages: Pages, headers: dict[str, str]) -> Response:
    body = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>pymon</title>"
        f"<h1>pymon {html.escape(pages.version)}</h1>"
        "<ul><li><a href=/metrics>metrics</a><li><a href=/-/healthy>healthy</a>"
        "<li><a href=/-/ready>ready</a></ul></html>\n"
    )
    return Response(200, body.encode(), (("Content-Type", "text/html; charset=utf-8"),))


_ROUTES: dict[bytes, Callable[[Pages, dict[str, str]], Response]] = {
    b"/": _landing,
    b"/metrics": _metrics,
    b"/-/healthy": _healthy,
    b"/-/ready": _ready,
}

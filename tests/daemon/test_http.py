import asyncio
import gzip
import socket
import urllib.error
import urllib.request

import pytest

from pymon.base.errors import PymonError
from pymon.daemon import http
from pymon.daemon.http import HttpServer, Pages
from tests.waiting import PATIENCE_S, until

METRICS = b"pymon_build_info 1\n" * 50


def served(talk, pages=None):
    """Runs `talk(url)` in a thread against a server on a free port."""

    async def main():
        server = HttpServer(pages or ready_pages())
        url = await server.start("127.0.0.1", 0)
        try:
            return await asyncio.to_thread(talk, url)
        finally:
            await server.stop()

    return asyncio.run(main())


def ready_pages():
    pages = Pages("0.1.0")
    pages.update(lambda: METRICS)
    return pages


def ask(url, path="/metrics", method="GET", **headers):
    request = urllib.request.Request(url + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as err:
        return err.code, err.read(), dict(err.headers)


def test_metrics_plain_and_compressed():
    plain = served(ask)
    packed = served(lambda url: ask(url, **{"Accept-Encoding": "gzip"}))

    assert plain[:2] == (200, METRICS)
    assert plain[2]["Content-Type"].startswith("text/plain; version=0.0.4")
    assert gzip.decompress(packed[1]) == METRICS


def test_a_tick_is_rendered_once_however_often_it_is_asked_for_and_not_at_all_unasked():
    made = []
    pages = Pages("0.1.0")

    def tick(text):
        pages.update(lambda: made.append(text) or text)

    tick(b"first\n")
    tick(b"second\n")
    answers = [
        served(lambda url, more=more: ask(url, **more), pages)[1]
        for more in ({}, {"Accept-Encoding": "gzip"}, {})
    ]
    assert (answers[0], gzip.decompress(answers[1])) == (b"second\n", b"second\n")
    tick(b"third\n")
    assert served(ask, pages)[1] == b"third\n"
    assert made == [b"second\n", b"third\n"]


def test_a_page_that_cannot_be_made_is_an_error_and_not_an_old_page():
    pages = ready_pages()
    assert served(ask, pages)[0] == 200
    pages.update(lambda: b"")

    assert served(ask, pages)[0] == 500
    assert served(lambda url: ask(url, "/-/healthy"), pages)[0] == 200


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 200),
        ("/-/healthy", "GET", 200),
        ("/-/ready", "GET", 200),
        ("/metrics", "HEAD", 200),
        ("/../../etc/passwd", "GET", 404),
        ("/metrics/", "GET", 404),
        ("/metrics", "POST", 405),
        ("/metrics", "DELETE", 405),
    ],
)
def test_only_what_is_offered_is_answered(path, method, status):
    assert served(lambda url: ask(url, path, method))[0] == status


def test_a_name_that_somebody_pointed_at_loopback_is_refused():
    assert served(lambda url: ask(url, Host="evil.example:80"))[0] == 421
    assert served(lambda url: ask(url, Host="LOCALHOST:80"))[0] == 200


def test_before_the_first_tick_it_is_healthy_and_not_ready():
    assert served(lambda url: ask(url, "/-/healthy")[0], Pages("0")) == 200
    assert served(lambda url: ask(url, "/-/ready")[0], Pages("0")) == 503
    assert served(lambda url: ask(url)[0], Pages("0")) == 503


def test_a_taken_port_is_said_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PymonError, match=rf"127\.0\.0\.1:{port}: .*--http HOST:PORT"):
            asyncio.run(HttpServer(Pages("0")).start("127.0.0.1", port))


def test_two_hundred_idle_and_dripping_clients_leave_scrapes_unharmed(monkeypatch):
    monkeypatch.setattr(http, "HEAD_TIMEOUT_S", 1.0)
    monkeypatch.setattr(http, "MAX_PER_PEER", http.MAX_CONNECTIONS)  # all are 127.0.0.1 here

    def attack(url):
        port = int(url.rsplit(":", 1)[1])
        hostile = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        for sock in hostile[::2]:
            try:
                sock.send(b"GET /metrics HTTP/1.1\r\nX-Drip: ")
            except OSError:
                continue  # closed by the cap already
        status = until(lambda: answered(url), what="an answer")  # while they go on
        for sock in hostile:
            sock.close()
        return status

    assert served(attack) == 200


def answered(url):
    """The status, None where the server closes the connection."""
    try:
        return ask(url)[0]
    except OSError:
        return None


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"A" * 100_000,
        b"\0" * 64,
    ],
)
def test_what_is_no_request_costs_only_its_connection(raw):
    def talk(url):
        port = int(url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as sock:
            try:
                sock.sendall(raw)
                sock.settimeout(3)
                sock.recv(1000)
            except OSError:
                pass  # reset by the server
        return ask(url)[0]

    assert served(talk) == 200

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pymon.base.errors import PymonError
from pymon.daemon import agent
from pymon.link import wire
from tests.daemon.probe_double import ATTACH_ID, Client, serving, until
from tests.link import page_peer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.sock"


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def with_server(path, test):
    async def main():
        async with serving(path) as (server, heard):
            await test(server, heard)

    asyncio.run(main())


def test_a_probe_hands_over_its_page_and_is_welcome(path):
    async def test(server, heard):
        client = Client(path)
        client.hello()

        assert await client.hear() == wire.Welcome()
        (attachment,) = server.seen()
        assert (attachment.hello.rank, attachment.pid, attachment.uid) == (
            3,
            os.getpid(),
            os.getuid(),
        )
        assert attachment.page.header.attach_id == ATTACH_ID
        assert heard.attached == [attachment]
        assert server.clients == 1

    with_server(path, test)


def test_an_order_reaches_its_probe_and_the_receipt_comes_back(path):
    async def test(server, heard):
        client = Client(path)
        client.hello()
        await client.hear()

        assert server.send(ATTACH_ID, wire.CaptureOrder("c1", "/spool"))
        assert not server.send("nobody", wire.CaptureOrder("c1", "/spool"))
        assert (await client.hear()).capture_id == "c1"
        client.send(wire.Receipt("c1", "written"))
        await until(lambda: heard.receipts)
        assert heard.receipts == [(ATTACH_ID, wire.Receipt("c1", "written"))]

    with_server(path, test)


def test_a_probe_that_hangs_up_has_ended_and_is_told_once(path):
    async def test(server, heard):
        client = Client(path)
        client.hello()
        await client.hear()
        client.close()
        await until(lambda: heard.ended)

        assert server.someone_ended
        assert [one.ended for one in server.seen()] == ["unknown"]
        assert server.seen() == []
        assert not server.send(ATTACH_ID, wire.CaptureOrder("c1", "/spool"))

    with_server(path, test)


def test_a_probe_that_connects_again_takes_its_place_and_has_not_ended(path):
    async def test(server, heard):
        first, second = Client(path), Client(path)
        first.hello()
        await first.hear()
        second.hello()
        await second.hear()
        first.close()
        await until(lambda: server.clients == 1)

        assert heard.ended == []
        assert [one.ended for one in server.seen()] == [None]
        assert server.send(ATTACH_ID, wire.CaptureOrder("c1", "/spool"))
        assert (await second.hear()).capture_id == "c1"

    with_server(path, test)


def test_an_attach_id_of_another_user_is_not_given_away(path):
    async def test(server, heard):
        first, second = Client(path), Client(path)
        first.hello()
        await first.hear()
        server.attachments[ATTACH_ID].peer = agent.Peer(1, os.getuid() + 1)
        second.hello()

        assert "another user" in (await second.hear()).reason

    with_server(path, test)


def test_death_shows_although_a_child_holds_the_socket(path):
    script = (
        "import os, sys, time\nfrom tests.daemon.probe_double import Client\n"
        f"client = Client({str(path)!r}); client.hello()\n"
        "if os.fork() == 0:\n    os.close(1); time.sleep(30)\n    os._exit(0)\n"
        "print('ready', flush=True)\nsys.stdin.readline()\nos._exit(0)\n"
    )

    async def test(server, heard):
        trainer = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            await until(lambda: server.attachments)
            assert not heard.ended
            await asyncio.to_thread(trainer.stdout.readline)  # by now it has forked
            trainer.communicate("end\n")
            await until(lambda: heard.ended)
        finally:
            os.killpg(trainer.pid, 9)
            trainer.wait()

    with_server(path, test)


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        ({"pages": 0}, "0 descriptors"),
        ({"pages": 2}, "2 descriptors"),
        ({"attach_id": "ff" * 16}, "another attach id"),
        ({"content": b"nonsense"}, "no page of pymon"),
    ],
    ids=["no page", "two pages", "another's page", "no page of ours"],
)
def test_what_is_wrong_with_a_page_is_told_and_nothing_is_kept(path, hello, reason):
    async def test(server, heard):
        before = descriptors()
        client = Client(path)
        client.hello(**hello)

        assert reason in (await client.hear()).reason
        assert await client.hear() is None
        client.close()
        assert (server.seen(), heard.attached, server.clients) == ([], [], 0)
        assert descriptors() == before

    with_server(path, test)


@pytest.mark.parametrize(
    "hostile",
    [
        lambda client: client.send(b"\xff" * 100),
        lambda client: client.send(b"[" * 60_000),
        lambda client: client.send(b"{}"),
        lambda client: client.send(b"x" * (wire.MAX_MESSAGE_BYTES + 1)),
        lambda client: client.hello(pages=40),
        lambda client: client.send(wire.Welcome()),
        lambda client: client.sock.shutdown(socket.SHUT_WR),
    ],
    ids=["bytes", "nesting", "no type", "too long", "many descriptors", "no opening", "nothing"],
)
def test_a_hostile_peer_costs_only_itself(path, hostile):
    async def test(server, heard):
        good = Client(path)
        good.hello()
        await good.hear()
        before = descriptors()
        bad = Client(path)
        hostile(bad)

        assert await bad.hear() is None
        bad.close()
        await until(lambda: descriptors() == before)
        assert server.send(ATTACH_ID, wire.CaptureOrder("c1", "/spool"))
        assert (await good.hear()).capture_id == "c1"

    with_server(path, test)


def test_descriptors_sent_later_are_closed(path):
    async def test(server, heard):
        client = Client(path)
        client.hello()
        await client.hear()
        before = descriptors()
        fd = page_peer.memfd()
        client.send(wire.Receipt("c1", "written"), [fd])
        os.close(fd)
        await until(lambda: heard.receipts)

        assert descriptors() == before

    with_server(path, test)


def test_who_says_nothing_is_hung_up_on(path, monkeypatch):
    monkeypatch.setattr(agent, "HELLO_TIMEOUT_S", 0.1)

    async def test(server, heard):
        assert await Client(path).hear() is None

    with_server(path, test)


@pytest.mark.parametrize("cap", ["MAX_CONNECTIONS", "MAX_PER_UID"])
def test_connections_beyond_the_cap_are_refused(path, monkeypatch, cap):
    monkeypatch.setattr(agent, cap, 1)

    async def test(server, heard):
        first, second = Client(path), Client(path)
        first.hello()
        await first.hear()

        assert await second.hear() is None
        assert server.refused_total == 1
        first.close()
        await until(lambda: not server.attachments)
        third = Client(path)
        third.hello()
        assert await third.hear() == wire.Welcome()

    with_server(path, test)


def test_a_command_gets_its_replies(path):
    async def test(server, heard):
        client = Client(path)
        client.send(wire.Request("status"))

        assert (await client.hear()).text == "on it"
        assert (await client.hear()).body == {"command": "status"}
        assert await client.hear() is None
        assert heard.requests[0][0] == agent.Peer(os.getpid(), os.getuid())

    with_server(path, test)


def test_who_holds_is_a_client_until_it_leaves(path):
    async def test(server, heard):
        client = Client(path)
        client.send(wire.Request("hold"))
        await until(lambda: server.clients == 1)
        client.close()
        await until(lambda: server.clients == 0)

    with_server(path, test)


def test_the_name_of_a_dead_daemon_is_taken_over(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(path))

    agent.listen(path, 0o600).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_second_daemon_says_that_one_is_running(path):
    with agent.listen(path, 0o600), pytest.raises(PymonError, match="is running already"):
        agent.listen(path, 0o600)


def test_a_file_that_is_no_socket_is_left_alone(path):
    path.write_text("mine")

    with pytest.raises(PymonError, match="no socket"):
        agent.listen(path, 0o600)
    assert path.read_text() == "mine"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PymonError, match="No such file"):
        agent.listen(tmp_path / "none" / "agent.sock", 0o600)


def test_the_place_is_the_systems_or_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr(agent.agent, "SYSTEM_SOCKET", tmp_path / "run" / "agent.sock")
    assert agent.default_path() == tmp_path / "run" / "agent.sock"

    monkeypatch.setattr(agent.agent, "SYSTEM_SOCKET", tmp_path / "none" / "run" / "agent.sock")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert agent.default_path() == tmp_path / "pymon" / "agent.sock"

    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with pytest.raises(PymonError, match="--socket PATH"):
        agent.default_path()

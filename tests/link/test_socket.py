"""The lookup finds a living daemon in the documented order, and trusts nobody else's socket."""

from __future__ import annotations

import os
import socket

import pytest

from pymon.link import socket as agent


@pytest.fixture
def listen():
    """Listen on a path, as the daemon does."""
    opened = []

    def start(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with agent.address(path) as short:
            sock.bind(short)
        sock.listen(4)
        opened.append(sock)
        return sock

    yield start
    for sock in opened:
        sock.close()


@pytest.fixture(autouse=True)
def no_daemon_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("PYMON_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(agent, "SYSTEM_SOCKET", tmp_path / "run" / "pymon" / "agent.sock")


def test_order_is_system_then_user(tmp_path):
    assert agent.candidates() == [
        tmp_path / "run/pymon/agent.sock",
        tmp_path / "runtime/pymon/agent.sock",
    ]


def test_a_chosen_socket_is_the_only_candidate(monkeypatch, tmp_path):
    monkeypatch.setenv("PYMON_SOCKET", str(tmp_path / "mine.sock"))

    assert agent.candidates() == [tmp_path / "mine.sock"]


def test_finds_the_first_that_answers(listen, tmp_path):
    listen(tmp_path / "run/pymon/agent.sock").close()  # a daemon that died: the file stays
    listen(tmp_path / "runtime/pymon/agent.sock")

    assert agent.find() == tmp_path / "runtime/pymon/agent.sock"


def test_finds_nothing_where_nothing_is():
    assert agent.find() is None


def test_messages_keep_their_borders(listen, tmp_path):
    server = listen(tmp_path / "agent.sock")

    with agent.connect(tmp_path / "agent.sock", 1.0) as client:
        there, _ = server.accept()
        with there:
            client.send(b"one")
            client.send(b"two")

            assert (there.recv(64), there.recv(64)) == (b"one", b"two")
            assert not os.get_inheritable(client.fileno())
            assert agent.peer_uid(there) == os.geteuid()


def test_a_path_too_long_for_the_kernel_still_connects(listen, tmp_path):
    path = tmp_path / ("deep" * 40) / "agent.sock"
    listen(path)

    agent.connect(path, 1.0).close()


def test_a_dead_daemon_is_an_oserror(listen, tmp_path):
    listen(tmp_path / "agent.sock").close()

    with pytest.raises(ConnectionRefusedError):
        agent.connect(tmp_path / "agent.sock", 1.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_refuses_a_strangers_socket(listen, tmp_path):
    path = tmp_path / "agent.sock"
    listen(path)
    os.chown(path, 12345, -1)

    with pytest.raises(PermissionError, match="uid 12345"):
        agent.connect(path, 1.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_trusts_whom_root_gave_the_system_folder(listen, tmp_path):
    path = tmp_path / "run/pymon/agent.sock"
    listen(path)
    os.chown(path, 12345, -1)
    os.chown(path.parent, 12345, -1)

    assert agent.find() == path

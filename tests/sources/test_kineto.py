import os
import shutil
import socket
import struct
import tempfile
import time
from pathlib import Path

import pytest

from pymon.base.errors import SourceAbsent
from pymon.sources import kineto as source
from pymon.sources.kineto import KinetoSocket, config_text
from tests.waiting import PATIENCE_S

HEAD = struct.Struct("<Q32s")


@pytest.fixture
def folder():
    folder = tempfile.mkdtemp(prefix="kineto")  # short: a socket's path has 107 bytes
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def daemon(folder):
    kineto = KinetoSocket(folder)
    kineto.start()
    yield kineto
    kineto.stop()


class Client:
    """A double of libkineto's side."""

    def __init__(self, folder):
        self.daemon = f"{folder}/dynolog"
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(f"{folder}/dynoconfigclient1")
        self.sock.settimeout(PATIENCE_S)

    def send(self, data):
        self.sock.sendto(data, self.daemon)

    def ask(self, mask=2):
        body = struct.pack("<iiqi", mask, 1, 0, 4711)
        self.send(HEAD.pack(len(body), b"req") + body)
        reply = self.sock.recv(65536)
        size, kind = HEAD.unpack_from(reply)
        assert kind.rstrip(b"\0") == b"req"
        assert len(reply) == HEAD.size + size
        return reply[HEAD.size :].decode()


@pytest.fixture
def client(folder, daemon):
    client = Client(folder)
    yield client
    client.sock.close()


def test_a_process_is_known_by_the_kernels_word_and_ready_after_two_questions(client, daemon):
    for _ in range(2):
        assert client.ask() == ""
        assert not daemon.processes()[0].ready
    client.ask()

    (process,) = daemon.processes()
    assert (process.pid, process.uid, process.ready) == (os.getpid(), os.getuid(), True)


def test_an_order_is_handed_over_once_and_not_before_the_third_question(client, daemon):
    client.ask()
    pid = daemon.processes()[0].pid
    assert daemon.request(pid, config_text(Path("/tmp/trace.json"), 2000))

    answers = [client.ask() for _ in range(3)]

    assert answers[0] == answers[2] == ""
    assert "ACTIVITIES_LOG_FILE=/tmp/trace.json\n" in answers[1]
    assert daemon.delivered(pid)


def test_a_busy_process_is_given_no_order(client, daemon):
    for _ in range(3):
        client.ask()
    daemon.request(daemon.processes()[0].pid, "x")

    assert client.ask(mask=1) == ""
    assert not daemon.processes()[0].ready
    assert client.ask(mask=3) == "x"


def test_an_order_that_could_not_be_handed_over_waits_for_the_next_question(client, daemon):
    for _ in range(3):
        client.ask()
    pid = daemon.processes()[0].pid
    daemon.request(pid, "x")
    unnamed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # cannot be answered
    body = struct.pack("<iiqi", 2, 1, 0, 4711)
    unnamed.sendto(HEAD.pack(len(body), b"req") + body, client.daemon)
    unnamed.close()

    assert client.ask() == "x"
    assert client.ask() == ""
    assert daemon.delivered(pid)


def test_an_order_that_was_withdrawn_is_not_given(client, daemon):
    for _ in range(3):
        client.ask()
    pid = daemon.processes()[0].pid
    daemon.request(pid, "x")
    daemon.withdraw(pid)

    assert client.ask() == ""
    assert not daemon.request(1, "x")


def test_answers_come_within_the_ninety_milliseconds_that_kineto_waits(client):
    times_s = []
    for _ in range(20):
        began_s = time.monotonic()
        client.ask()
        times_s.append(time.monotonic() - began_s)

    assert sorted(times_s)[10] < 0.09


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\xff" * 40, HEAD.pack(1 << 60, b"req"), HEAD.pack(0, b"other")]
)
def test_garbage_is_not_answered_and_stops_nothing(client, data):
    client.send(data)

    assert client.ask() == ""


def test_an_endpoint_that_is_taken_is_absent_with_the_reason(folder, daemon):
    with pytest.raises(SourceAbsent, match="dynolog"):
        KinetoSocket(folder).start()


def test_a_name_that_a_dead_daemon_left_is_taken_over(folder):
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(f"{folder}/dynolog")
    left.close()
    kineto = KinetoSocket(folder)
    kineto.start()
    kineto.stop()

    assert not Path(folder, "dynolog").exists()


@pytest.mark.parametrize(
    ("path", "duration_ms"),
    [
        ("/tmp/a b.json", 2000),
        ("/tmp/a\nX=1.json", 2000),
        ("relative.json", 2000),
        ("/tmp/a.txt", 2000),
        ("/tmp/" + "x" * 300 + ".json", 2000),
        ("/tmp/a.json", 0),
        ("/tmp/a.json", -1),
        ("/tmp/a.json", 10**9),
    ],
)
def test_what_kineto_might_not_parse_is_never_written(path, duration_ms):
    with pytest.raises(ValueError, match="not a"):
        config_text(Path(path), duration_ms)


def test_a_client_that_says_who_it_is_is_told_that_it_is_one(client, daemon):
    body = struct.pack("<iiq", 0, 1, 0)
    client.send(HEAD.pack(len(body), b"ctxt") + body)

    reply = client.sock.recv(4096)

    assert reply == HEAD.pack(4, b"ctxt") + struct.pack("<i", 1)
    assert daemon.processes() == (), "only a question for orders counts"


def test_a_pid_in_the_question_is_not_believed(client, daemon):
    body = struct.pack("<iiqi", 2, 1, 0, 1)
    client.send(HEAD.pack(len(body), b"req") + body)
    client.sock.recv(4096)

    assert [process.pid for process in daemon.processes()] == [os.getpid()]


def test_a_process_that_asks_no_more_is_forgotten_and_starts_anew(client, daemon, monkeypatch):
    for _ in range(3):
        client.ask()
    assert daemon.processes()[0].ready
    monkeypatch.setattr(source, "FORGET_S", -1)  # whatever was, was too long ago

    client.ask()
    monkeypatch.undo()

    assert not daemon.processes()[0].ready, "it may be another process of the same pid"


def test_processes_that_ended_make_room_for_new_ones(client, daemon, monkeypatch):
    monkeypatch.setattr(source, "_MAX_PROCESSES", 3)
    long_ago_s = time.monotonic() - 3600
    daemon._clients.update({n: source._Client(n, 0, seen_s=long_ago_s) for n in range(-3, 0)})

    client.ask()

    assert [process.pid for process in daemon.processes()] == [os.getpid()]


def test_more_processes_than_can_be_kept_are_answered_and_not_kept(client, daemon, monkeypatch):
    monkeypatch.setattr(source, "_MAX_PROCESSES", 3)
    now_s = time.monotonic()
    daemon._clients.update({n: source._Client(n, 0, seen_s=now_s) for n in range(-3, 0)})

    assert client.ask() == ""
    assert len(daemon.processes()) == 3


def test_a_file_that_is_no_socket_is_left_alone(folder):
    file = Path(folder, "dynolog")
    file.write_text("a program of that name")

    with pytest.raises(SourceAbsent):
        KinetoSocket(folder).start()
    assert file.read_text() == "a program of that name"


def test_a_link_in_the_sockets_place_opens_up_no_other_file(folder):
    secret, link = Path(folder, "secret"), Path(folder, "link")
    secret.write_text("x")
    secret.chmod(0o600)
    link.symlink_to(secret)

    for path in (secret, link):
        with pytest.raises(OSError):  # noqa: PT011 - which error depends on what lies there
            source._let_all_send(path)
    assert secret.stat().st_mode & 0o777 == 0o600


def test_processes_of_all_users_may_send(folder, daemon):
    assert Path(folder, "dynolog").stat().st_mode & 0o777 == 0o666


def test_a_folder_that_is_gone_is_absent_with_the_reason(folder):
    with pytest.raises(SourceAbsent, match="No such file"):
        KinetoSocket(f"{folder}/gone").start()

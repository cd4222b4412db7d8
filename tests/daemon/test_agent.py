import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
import threading
import time

import pytest

from pymon.daemon import agent, death
from pymon.daemon.agent import AgentServer, Handlers
from pymon.daemon.listener import listen
from pymon.link import wire
from tests.daemon.pages import connect, hello, memfd_page, receive, send
from tests.waiting import PATIENCE_S, until

ID = "ab" * 16


class Daemon:
    """An agent server that notes what happens."""

    def __init__(self, path):
        self.path, self.attached, self.ended, self.receipts = path, [], [], []
        self.server = AgentServer(
            Handlers(
                attached=self.attached.append,
                ended=self.ended.append,
                receipt=lambda attach_id, receipt: self.receipts.append((attach_id, receipt)),
                request=self.answer,
            )
        )

    async def answer(self, peer, request):
        yield wire.Reply(text="working")
        yield wire.Reply(last=True, body={"command": request.command, "uid": peer.uid})


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """The trainers of these tests live in this process, so their end is that of their connection."""
    monkeypatch.setattr(agent, "RECONNECT_S", 0.1)


@pytest.fixture
def served(tmp_path):
    """Runs a test's `talk(daemon)` in a thread while the server runs; no descriptor may be left."""

    def run(talk):
        async def main():
            daemon = Daemon(tmp_path / "agent.sock")
            daemon.loop = asyncio.get_running_loop()
            daemon.server.start(daemon.path, 0o600)
            try:
                return await asyncio.to_thread(talk, daemon)
            finally:
                await daemon.server.stop()
                for one in daemon.attached:
                    one.page.close()  # the collector's task; Python's mapping holds a descriptor

        before = len(os.listdir("/proc/self/fd"))
        result = asyncio.run(main())
        assert len(os.listdir("/proc/self/fd")) <= before
        return result

    return run


def test_a_trainer_hands_its_page_over_obeys_and_answers(served):
    def talk(daemon):
        sock, answer = hello(daemon.path)
        assert isinstance(answer, wire.Welcome)
        until(lambda: daemon.attached)
        order = wire.CaptureOrder("c1", "/spool")
        assert daemon.server.send(ID, order)
        assert receive(sock) == order
        send(sock, wire.Receipt("c1", "written"))
        until(lambda: daemon.receipts)
        sock.close()
        until(lambda: daemon.ended)
        assert not daemon.server.send(ID, order)
        return daemon

    daemon = served(talk)

    assert daemon.receipts == [(ID, wire.Receipt("c1", "written"))]
    assert daemon.attached[0].page.header.attach_id == ID
    assert daemon.ended[0].ended == "disconnected"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ({"seals": 0}, "not sealed"),
        ({"seals": fcntl.F_SEAL_GROW}, "not sealed"),
        ({"magic": b"NOTAPAGE"}, "no page of pymon"),
    ],
)
def test_a_page_that_may_not_be_mapped_is_rejected_with_the_reason(served, page, said, caplog):
    def talk(daemon):
        sock, answer = hello(daemon.path, **page)
        sock.close()
        assert daemon.server.pages_refused_total == 1
        return answer, daemon.attached

    answer, attached = served(talk)

    assert said in caplog.text

    assert isinstance(answer, wire.Reject)
    assert said in answer.reason
    assert attached == []


def test_a_page_that_is_dropped_is_counted_told_and_costs_no_other(served, caplog):
    def talk(daemon):
        liar, _ = hello(daemon.path)
        honest, _ = hello(daemon.path, attach_id="cd" * 16)
        until(lambda: len(daemon.attached) == 2)
        next(a for a in daemon.attached if a.hello.attach_id == ID).drop("it lies")
        answer = receive(liar)
        assert receive(liar) is None  # and the connection is closed
        until(lambda: daemon.ended)
        send(honest, wire.Receipt("c1", "written"))
        until(lambda: daemon.receipts)
        for sock in (liar, honest):
            sock.close()
        return answer, [a.ended for a in daemon.ended], daemon.server.pages_refused_total

    answer, ended, count = served(talk)
    assert answer == wire.Reject("it lies")
    assert ended == ["page dropped: it lies"]
    assert count == 1
    assert "dropped: it lies" in caplog.text


def test_a_process_that_comes_back_with_another_page_has_a_new_image(served, monkeypatch):
    monkeypatch.setattr(agent, "RECONNECT_S", PATIENCE_S)

    def talk(daemon):
        before, _ = hello(daemon.path)
        beside, _ = hello(daemon.path, attach_id="ef" * 16)  # still connected: not replaced
        before.close()
        until(lambda: any(a.sock is None for a in daemon.attached))
        after, _ = hello(daemon.path, attach_id="cd" * 16)
        until(lambda: daemon.ended)
        said = [(a.hello.attach_id, a.ended) for a in daemon.ended]
        left = set(daemon.server.attachments)
        for sock in (beside, after):
            sock.close()
        return said, left

    said, left = served(talk)
    assert said == [(ID, "replaced by exec")]
    assert left == {"ef" * 16, "cd" * 16}


@pytest.mark.parametrize("count", [0, 2, 3])
def test_exactly_one_descriptor_is_taken(served, count):
    def talk(daemon):
        fds = [memfd_page() for _ in range(count)]
        sock = connect(daemon.path)
        send(sock, wire.Hello(ID, 1), fds)
        answer = receive(sock)
        sock.close()
        for fd in fds:
            os.close(fd)
        return answer

    assert "one is expected" in served(talk).reason


def test_more_descriptors_than_there_is_room_for_are_closed_too(served):
    def talk(daemon):
        fds = [memfd_page() for _ in range(20)]
        sock = connect(daemon.path)
        send(sock, wire.Hello(ID, 1), fds)
        answer = receive(sock)
        sock.close()
        for fd in fds:
            os.close(fd)
        return answer

    assert served(talk) is None


def test_a_page_of_another_attach_id_is_rejected(served):
    def talk(daemon):
        fd = memfd_page("cd" * 16)
        sock = connect(daemon.path)
        send(sock, wire.Hello(ID, 1), [fd])
        answer = receive(sock)
        sock.close()
        os.close(fd)
        return answer

    assert "another attach id" in served(talk).reason


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        b"{}",
        b'{"type": "hello"}',
        b"[" * 5000,
        b'{"type":"receipt","capture_id":1}',
        b"x" * 60_000,
    ],
)
def test_garbage_costs_its_own_connection_only(served, data):
    def talk(daemon):
        good, _ = hello(daemon.path)
        bad = connect(daemon.path)
        send(bad, data)
        assert receive(bad) is None
        send(good, data)  # a trainer that was taken and turns hostile
        assert receive(good) is None
        other, answer = hello(daemon.path, "cd" * 16)
        for sock in (good, bad, other):
            sock.close()
        return answer

    assert isinstance(served(talk), wire.Welcome)


def test_a_silent_peer_is_dropped(served, monkeypatch):
    monkeypatch.setattr(agent, "HELLO_TIMEOUT_S", 0.3)

    def talk(daemon):
        silent = connect(daemon.path)
        assert receive(silent) is None
        silent.close()

    served(talk)


def test_a_flood_is_capped_and_those_after_it_are_served(served, monkeypatch):
    monkeypatch.setattr(agent, "HELLO_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(agent, "MAX_PER_UID", 10)

    def talk(daemon):
        flood = [connect(daemon.path) for _ in range(30)]
        until(lambda: daemon.server.refused_total == 20)
        for sock in flood[10:]:
            assert receive(sock) is None
        for sock in flood:
            sock.close()
        until(lambda: not daemon.server._live)
        sock, answer = hello(daemon.path)
        sock.close()
        return answer

    assert isinstance(served(talk), wire.Welcome)


def test_a_peer_that_never_reads_costs_nobody_else(served, monkeypatch):
    monkeypatch.setattr(agent, "SEND_TIMEOUT_S", 0.3)

    async def endless(peer, request):
        while True:
            yield wire.Reply(text="x" * 50_000)

    def talk(daemon):
        daemon.server.handlers.request = endless
        deaf = connect(daemon.path)
        send(deaf, wire.Request("status"))
        sock, answer = hello(daemon.path)
        until(lambda: daemon.server._live.total() == 1)
        deaf.close()
        sock.close()
        return answer

    assert isinstance(served(talk), wire.Welcome)


def test_commands_are_answered_to_the_last_reply(served):
    def talk(daemon):
        sock = connect(daemon.path)
        send(sock, wire.Request("status"))
        replies = [receive(sock), receive(sock), receive(sock)]
        sock.close()
        return replies

    first, last, end = served(talk)
    assert first.text == "working"
    assert last.last
    assert last.body == {"command": "status", "uid": os.geteuid()}
    assert end is None


def test_hold_counts_as_a_client_while_it_is_connected(served):
    def talk(daemon):
        sock = connect(daemon.path)
        send(sock, wire.Request("hold"))
        until(lambda: daemon.server.clients == 1)
        sock.close()
        until(lambda: daemon.server.clients == 0)
        return daemon.server.clients_total

    assert served(talk) == 1


def test_a_death_is_seen_though_a_child_holds_the_socket_open(served):
    trainer = (
        "import os, sys\n"
        "from tests.daemon.pages import hello\n"
        "sock, _ = hello(sys.argv[1])\n"
        "if os.fork() == 0:\n"
        "    sys.stdin.read()\n"  # until the test has seen what it wants to
        "os._exit(0)"
    )

    def talk(daemon):
        command = [sys.executable, "-c", trainer, str(daemon.path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.wait(PATIENCE_S) == 0
            until(lambda: daemon.attached)
            until(lambda: daemon.ended)
        return [one.ended for one in daemon.ended]

    assert served(talk) in (["exited"], ["unknown"])  # before Linux 6.15 its parent may be faster


def test_a_trainer_that_connects_again_takes_its_own_place_and_has_not_ended(served):
    def talk(daemon):
        first, _ = hello(daemon.path)
        second, answer = hello(daemon.path)
        assert isinstance(answer, wire.Welcome)
        until(lambda: len(daemon.attached) == 2)
        first.close()
        until(lambda: daemon.server.clients == 1)
        assert daemon.ended == []
        assert [one.ended for one in daemon.server.seen()] == [None]
        assert daemon.server.send(ID, wire.CaptureOrder("c1", "/spool"))
        assert receive(second).capture_id == "c1"
        second.close()
        until(lambda: daemon.server.someone_ended)
        return [one.ended for one in daemon.server.seen()], daemon.server.seen()

    assert served(talk) == (["disconnected"], [])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ({}, "killed by SIGKILL"),
        ({"run_id": "another"}, "unknown"),
        ({"pid": 1}, "unknown"),
        ({"uid": 12345}, "unknown"),
    ],
)
def test_the_parents_word_counts_where_the_kernel_tells_nothing(served, monkeypatch, word, said):
    """As before Linux 6.15, where a process that its parent has waited for is forgotten."""

    async def blind(watch, grace_s):
        return "unknown"

    monkeypatch.setattr(death.Watch, "how", blind)
    word = {"uid": os.getuid(), "run_id": "r1", "pid": os.getpid()} | word

    def talk(daemon):
        fd = memfd_page(ID)
        sock = connect(daemon.path)
        send(sock, wire.Hello(ID, os.getpid(), run_id="r1"), [fd])
        os.close(fd)
        assert isinstance(receive(sock), wire.Welcome)
        peer = agent.Peer(1, word["uid"])
        daemon.loop.call_soon_threadsafe(daemon.server.hear, peer, word["run_id"], word["pid"], 9)
        sock.close()
        until(lambda: daemon.ended)
        return daemon.ended[0].ended

    assert served(talk) == said


def test_a_connection_that_comes_back_in_time_was_no_end(served, monkeypatch):
    lapse, lapsed = threading.Event(), []

    async def how(watch, grace_s):
        await asyncio.to_thread(lapse.wait, PATIENCE_S)  # the grace, for as long as this test takes
        lapsed.append(grace_s)

    monkeypatch.setattr(agent.Watch, "how", how)

    def talk(daemon):
        first, _ = hello(daemon.path)
        first.close()
        until(lambda: daemon.attached and daemon.server.clients == 0)
        assert daemon.server.attachments[ID].ended is None
        second, _ = hello(daemon.path)
        lapse.set()
        until(lambda: lapsed)
        other, _ = hello(daemon.path, "cd" * 16)  # by then the server has dealt with it
        ended = list(daemon.ended)
        second.close()
        other.close()
        return ended

    assert served(talk) == []


def test_the_place_of_another_users_trainer_cannot_be_taken(served):
    def talk(daemon):
        first, _ = hello(daemon.path)
        until(lambda: daemon.attached)
        daemon.attached[0].peer = agent.Peer(1, os.getuid() + 1)
        second, answer = hello(daemon.path)
        first.close()
        second.close()
        return answer

    assert "another user" in served(talk).reason


def test_a_pid_of_another_namespace_is_not_taken_for_one_of_ours(served, monkeypatch):
    monkeypatch.setattr(agent, "peer_of", lambda sock: agent.Peer(0, os.getuid()))
    monkeypatch.setattr(death.os, "pidfd_open", lambda pid: pytest.fail("whose pid is that?"))

    def talk(daemon):
        sock, _ = hello(daemon.path)
        sock.close()
        until(lambda: daemon.ended)
        return daemon.ended[0].ended

    assert served(talk) == "unknown"


def test_a_flood_of_messages_waits_in_its_own_socket(served):
    def talk(daemon):
        sock, _ = hello(daemon.path)
        sock.settimeout(0.5)
        began_s, sent = time.monotonic(), 0
        with contextlib.suppress(TimeoutError):
            while time.monotonic() - began_s < 1.0:
                send(sock, wire.Receipt("c1", "x" * 1000))
                sent += 1
        rate = len(daemon.receipts) / (time.monotonic() - began_s)
        sock.close()
        return rate

    assert served(talk) < 2 / agent.PAUSE_S


def test_a_daemon_leaves_the_name_to_the_one_that_took_it(tmp_path):
    path = tmp_path / "agent.sock"

    async def main():
        daemon = Daemon(path)
        daemon.server.start(path, 0o600)
        path.rename(tmp_path / "old")  # as if it had hung while another started
        other = listen(path, 0o600)
        await daemon.server.stop()
        other.close()
        return path.exists()

    assert asyncio.run(main())

"""Whatever the daemon is or does, the training's output, errors and exit code are as without pymon."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pymon.link import wire
from tests.probe import training
from tests.probe.training import DaemonDouble, environment, train, welcome
from tests.waiting import PATIENCE_S, until

pytest.importorskip("torch", reason="the probe hooks torch")
from pymon import native

pytestmark = pytest.mark.skipif(native.probe()[0] is None, reason=native.probe()[1])


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory):
    return train(environment(tmp_path_factory.mktemp("none") / "agent.sock", PYMON="0"))


def test_without_a_daemon_nothing_shows(unwatched, tmp_path):
    assert train(environment(tmp_path / "agent.sock")) == unwatched
    assert unwatched[0] == training.EXIT_CODE


@pytest.mark.parametrize(
    "behave",
    [
        training.silent,
        training.closes,
        training.rejects,
        training.talks_nonsense,
        training.orders_nonsense,
    ],
)
def test_a_bad_daemon_is_not_noticed(unwatched, tmp_path, behave):
    daemon = DaemonDouble(tmp_path / "agent.sock", behave)
    assert train(environment(tmp_path / "agent.sock")) == unwatched
    until(lambda: daemon.seen, what="the probe")


def test_the_daemon_gets_the_page_and_who_it_is(unwatched, tmp_path):
    daemon = DaemonDouble(tmp_path / "agent.sock", welcome)
    known = {"RANK": "3", "WORLD_SIZE": "8", "SLURM_JOB_ID": "77", "PYMON_RUN_ID": "run-1"}
    assert train(environment(tmp_path / "agent.sock", **known)) == unwatched
    hello, page = until(lambda: daemon.seen, what="the page")[0]
    assert (hello.rank, hello.world_size, hello.job_id, hello.run_id) == (3, 8, "77", "run-1")
    assert hello.attach_id == page.header.attach_id
    assert hello.pid == page.header.pid
    assert page.train().steps_total == 30


def test_a_late_daemon_and_a_restarted_one_see_all_steps_of_the_same_page(tmp_path):
    path = tmp_path / "agent.sock"
    with _training(path) as trainer:
        until(lambda: _has_page(trainer.pid), what="the first step")
        time.sleep(1.5)  # its sender finds nobody for a while
        first = _connected(DaemonDouble(path, welcome))
        steps = first.seen[0][1].train().steps_total
        first.hang_up()
        path.unlink()
        second = _connected(DaemonDouble(path, welcome))
        assert second.seen[0][0].attach_id == first.seen[0][0].attach_id
        page = second.seen[0][1]
        newer, lost = until(lambda: page.steps_after(steps)[0] and page.steps_after(steps))
        assert newer[0].step == steps + 1
        assert lost == 0


def test_where_the_daemons_backlog_is_full_training_goes_on_and_the_probe_tries_again(
    unwatched, tmp_path
):
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(0)
        before_us = _filled(path)
        assert train(environment(path)) == unwatched
        with _training(path) as trainer:
            until(lambda: _has_page(trainer.pid), what="the first step")
            time.sleep(1.5)  # its sender finds no room for a while
            for _ in before_us:
                listener.accept()[0].close()
            listener.settimeout(PATIENCE_S)
            connection = listener.accept()[0]
            data, fds, _, _ = socket.recv_fds(connection, wire.MAX_MESSAGE_BYTES, 1)
            assert wire.decode(data).pid == trainer.pid
            os.close(fds[0])
            connection.close()
            assert trainer.poll() is None
        for sock in before_us:
            sock.close()


def test_where_the_daemon_does_not_read_training_goes_on_and_the_receipt_comes_later(tmp_path):
    path = tmp_path / "agent.sock"
    daemon = DaemonDouble(path, training.reads_nothing_at_first)
    with _training(path) as trainer:
        until(lambda: len(daemon.seen) == 2, what="the probe, again")
        page = daemon.seen[1][1]
        steps = page.train().steps_total
        receipt = until(lambda: daemon.receipts, what="the receipt")[0]
        assert (receipt.status, receipt.reason) == ("refused", "the order is malformed")
        until(lambda: page.train().steps_total > steps + 20, what="more steps")
        assert trainer.poll() is None


def test_the_probe_goes_on_with_its_own_work_after_a_daemon_said_no(tmp_path):
    """What it does each half second (late layers, publication) must not wait for the next try, a minute later."""
    daemon = DaemonDouble(tmp_path / "agent.sock", training.rejects)
    code = (
        "import os, threading\n"
        "from types import SimpleNamespace\n"
        "from pymon.probe.sender import Sender\n"
        "ticks = threading.Semaphore(0)\n"
        "budget = SimpleNamespace(armed=True, tick=lambda: None)\n"
        "sender = Sender('00' * 16, os.memfd_create('page'), None, budget, ticks.release)\n"
        "sender.start()\n"
        "print(all(ticks.acquire(timeout=30) for _ in range(8)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path / "agent.sock"),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True\n", done.stderr
    assert len(daemon.seen) == 1  # and no second try


@contextlib.contextmanager
def _training(path):
    """One that goes on until the block ends."""
    code = training.SCRIPT.format(steps=100_000, pause_s=0.02, code=0)
    trainer = subprocess.Popen([sys.executable, "-c", code], env=environment(path))
    try:
        yield trainer
    finally:
        trainer.kill()
        trainer.wait()


def _filled(path):
    """Connections that wait to be accepted, as many as there is room for."""
    waiting = []
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        try:
            sock.connect(str(path))
        except BlockingIOError:
            sock.close()
            return waiting
        waiting.append(sock)


def _connected(daemon):
    until(lambda: daemon.seen, what="the probe")
    return daemon


def _has_page(pid):
    names = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since it was listed
            names.append(os.readlink(path))
    return any("pymon-page" in name for name in names)

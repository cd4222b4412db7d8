"""The worker by itself."""

import os
import socket
import subprocess
import sys
import time

import pytest

from pymon.sources.nvml import wire
from pymon.sources.nvml.announce import Page
from tests.nvml_double import NodeDouble, standard_node

WITH_SHORT_PATIENCE = """
import sys
from pymon.sources.nvml import worker
worker.IDLE_S = 0.3
worker.main(*map(int, sys.argv[1:4]), sys.argv[4])
"""


@pytest.fixture
def worker(tmp_path):
    """A worker of a node of four GPUs, and our end of its socket."""
    node = NodeDouble(tmp_path, standard_node(4))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    page, fd = Page.create()
    numbers = map(str, (os.getpid(), theirs.fileno(), fd))
    command = [sys.executable, "-c", WITH_SHORT_PATIENCE, *numbers]
    process = subprocess.Popen(
        [*command, str(node.library)], env=node.env, pass_fds=(theirs.fileno(), fd)
    )
    theirs.close()
    os.close(fd)
    ours.settimeout(10)
    assert isinstance(wire.decode(ours.recv(wire.MAX_MESSAGE_BYTES)), wire.Ready)
    yield process, ours
    process.kill()
    process.wait()
    ours.close()
    page.close()


def sweep(ours, **order):
    ours.send(wire.encode(wire.Sweep(**order)))
    messages = []
    while not messages or not isinstance(messages[-1], wire.Done):
        messages.append(wire.decode(ours.recv(wire.MAX_MESSAGE_BYTES)))
    return messages


def test_it_touches_no_driver_for_a_daemon_that_died_before_it_began(tmp_path):
    state = standard_node(1)
    state["faults"] = [{"function": "nvmlInitWithFlags", "hang": True}]
    node = NodeDouble(tmp_path, state)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    page, fd = Page.create()
    numbers = map(str, (2**22 + 1, theirs.fileno(), fd))  # no such process
    command = [sys.executable, "-c", WITH_SHORT_PATIENCE, *numbers, str(node.library)]
    process = subprocess.Popen(command, env=node.env, pass_fds=(theirs.fileno(), fd))
    try:
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.wait()
        for end in (ours, theirs, page):
            end.close()
        os.close(fd)


def test_it_ends_with_the_daemons_end_of_the_socket(worker):
    process, ours = worker
    ours.close()

    assert process.wait(5) == 0


def test_it_ends_when_nobody_asks_any_more(worker):
    process, _ = worker

    assert process.wait(5) == 0


def test_slow_readings_come_with_the_first_sweep_and_then_spread_over_their_period(worker):
    _, ours = worker
    first = sweep(ours, slow_s=0.8)[:-1]
    assert [read.slow is not None for read in first] == [True] * 4
    seen = []
    until_s = time.monotonic() + 0.9
    while time.monotonic() < until_s:
        seen.append([r.index for r in sweep(ours, slow_s=0.8)[:-1] if r.slow is not None])
        time.sleep(0.02)

    assert {index for indices in seen for index in indices} == {0, 1, 2, 3}
    assert max(map(len, seen)) < 4  # one after the other, not all in one sweep


def test_ten_thousand_readings_take_no_more_memory(worker):
    process, ours = worker

    def anonymous_kib():
        with open(f"/proc/{process.pid}/smaps_rollup") as rollup:
            return sum(int(line.split()[1]) for line in rollup if line.startswith("Anonymous"))

    for _ in range(1500):  # Python's arenas and malloc's settle in some seconds
        sweep(ours, slow_s=0.01)
    before = anonymous_kib()
    for _ in range(2500):
        sweep(ours, slow_s=0.01)

    assert anonymous_kib() - before < 512

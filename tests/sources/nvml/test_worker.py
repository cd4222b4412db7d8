"""The worker by itself."""

import os
import socket
import subprocess
import sys

import pytest

from pymon.sources.nvml import wire
from pymon.sources.nvml.announce import Page
from tests.nvml_double import NodeDouble, standard_node
from tests.waiting import PATIENCE_S, until

IMPATIENT = """
import sys
from pymon.sources.nvml import worker
worker.IDLE_S = float(sys.argv[5])
worker.main(*map(int, sys.argv[1:4]), sys.argv[4])
"""


@pytest.fixture
def worker(tmp_path, request):
    """A worker of a node of four GPUs, and our end of its socket; parameter: its patience."""
    idle_s = str(getattr(request, "param", PATIENCE_S))
    node = NodeDouble(tmp_path, standard_node(4))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    page, fd = Page.create()
    numbers = map(str, (os.getpid(), theirs.fileno(), fd))
    command = [sys.executable, "-c", IMPATIENT, *numbers, str(node.library), idle_s]
    process = subprocess.Popen(command, env=node.env, pass_fds=(theirs.fileno(), fd))
    theirs.close()
    os.close(fd)
    ours.settimeout(PATIENCE_S)
    assert isinstance(wire.decode(ours.recv(wire.MAX_MESSAGE_BYTES)), wire.Ready)
    yield process, ours
    process.kill()
    process.wait()
    ours.close()
    page.close()


def sweep(ours, **order):
    ours.send(wire.encode(wire.Sweep(**order)))
    reads = []
    while not isinstance(message := wire.decode(ours.recv(wire.MAX_MESSAGE_BYTES)), wire.Done):
        reads += message.gpus
    return reads


def test_it_touches_no_driver_for_a_daemon_that_died_before_it_began(tmp_path):
    state = standard_node(1)
    state["faults"] = [{"function": "nvmlInitWithFlags", "hang": True}]
    node = NodeDouble(tmp_path, state)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    page, fd = Page.create()
    numbers = map(str, (2**22 + 1, theirs.fileno(), fd))  # no such process
    command = [sys.executable, "-c", IMPATIENT, *numbers, str(node.library), str(PATIENCE_S)]
    process = subprocess.Popen(command, env=node.env, pass_fds=(theirs.fileno(), fd))
    try:
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        for end in (ours, theirs, page):
            end.close()
        os.close(fd)


def test_it_ends_with_the_daemons_end_of_the_socket(worker):
    process, ours = worker
    ours.close()

    assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("worker", [0.3], indirect=True)
def test_it_ends_when_nobody_asks_any_more(worker):
    process, _ = worker

    assert process.wait(PATIENCE_S) == 0


def test_slow_readings_come_with_the_first_sweep_and_then_spread_over_their_period(worker):
    _, ours = worker
    period_s = 2.0
    first = sweep(ours, slow_s=period_s)
    assert [read.slow is not None for read in first] == [True] * 4
    seen = []

    def all_came():
        seen.append([r.index for r in sweep(ours, slow_s=period_s) if r.slow is not None])
        return {index for indices in seen for index in indices} == {0, 1, 2, 3}

    until(all_came)
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

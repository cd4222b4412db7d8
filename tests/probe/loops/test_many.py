"""Sixty-four processes that attach at once, before a real daemon."""

import json
import os
import subprocess
import sys
import threading

import pytest
import torch

from tests.integration.node import Node, until
from tests.probe.loops import child
from tests.probe.loops.conftest import checked
from tests.probe.loops.parts import new, train
from tests.probe.training import ROOT, environment
from tests.waiting import PATIENCE_S

COUNT, STEPS = 64, 20


def many():
    """All begin at the same moment, and stay until the input ends."""
    new()  # loads what the first optimizer loads, once for all
    torch.set_num_threads(1)
    start_read, start_write = os.pipe()
    pids = []
    for _ in range(COUNT):
        pid = os.fork()
        if pid == 0:
            os.close(start_write)
            model, optimizer = new()
            os.read(start_read, 1)  # until the parent closes its end
            train(model, optimizer, STEPS)
            threads = sum(thread.name == "pymon-sender" for thread in threading.enumerate())
            child.report(rank=1, threads=threads)
            sys.stdin.read()
            os._exit(0)
        pids.append(pid)
    os.close(start_write)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    node.daemon("--http", "off")
    yield node
    node.end()


@pytest.mark.slow
def test_each_of_64_has_its_page_and_the_daemon_has_them_all(node, tmp_path):
    pages = tmp_path / "pages"
    pages.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", *child.command(many)],
        cwd=ROOT,
        env=environment(node.socket, PYMON_TEST_PAGES=str(pages), OMP_NUM_THREADS="1"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:

        def all_seen():
            status = node.pymon("status", "--json", "--socket", node.socket)
            said = json.loads(status.stdout)["processes"] if status.returncode == 0 else []
            counts = {one["pid"]: one["steps"] for one in said}
            return counts if list(counts.values()) == [STEPS] * COUNT else None

        seen = until(
            all_seen, 2 * PATIENCE_S, f"{COUNT} trainings of {STEPS} steps in pymon status"
        )
    finally:
        process.stdin.close()
        errors = process.stderr.read()
        code = process.wait(PATIENCE_S)
    assert (code, errors) == (0, "")
    said = [checked(json.loads(path.read_text())) for path in pages.iterdir()]
    trained = [page for page in said if page.steps is not None]
    assert {page.pid for page in trained} == set(seen)
    assert [(page.counts, page.threads) for page in trained] == [
        ((STEPS, STEPS, STEPS, 0), 1)
    ] * COUNT

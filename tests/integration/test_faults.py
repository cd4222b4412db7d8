"""Trainers that lie, start anew, come all at once, or meet a daemon without room: the others never notice."""

import json
import mmap
import os
import sys

import pytest

from pymon.cli.child_env import training_environment
from pymon.link import layout, wire
from tests.daemon import pages
from tests.integration.node import TRAINING, until
from tests.integration.test_restart import metric

RANKS = 64


def rows(node):
    status = node.pymon("status", "--json", "--socket", node.socket)
    return json.loads(status.stdout)["processes"] if status.returncode == 0 else []


def boxes(node, pid):
    done = node.pymon("blackbox", "--list", "--json", "--socket", node.socket)
    return [row for row in json.loads(done.stdout) if row["pid"] == pid]


class Liar:
    """A page that was sound when it was handed over, and is written on."""

    def __init__(self, node, attach_id):
        fd = pages.memfd_page(attach_id)
        self.page = mmap.mmap(fd, layout.PAGE_BYTES)
        self.sock = pages.connect(node.socket)
        pages.send(self.sock, wire.Hello(attach_id, os.getpid(), script="liar.py"), [fd])
        os.close(fd)
        assert isinstance(pages.receive(self.sock), wire.Welcome)

    def steps(self, total):
        # The body begins with `counting` and `steps_total`; the lock is the section's first word.
        at = layout.TRAIN_OFFSET + layout.TRAIN_BODY_IN_SECTION + 8
        self.page[at : at + 8] = total.to_bytes(8, "little")

    def lock(self):
        self.page[layout.TRAIN_OFFSET : layout.TRAIN_OFFSET + 8] = (1).to_bytes(8, "little")

    def seen(self, node, total):
        def told():
            return any(r["script"] == "liar.py" and r["steps"] == total for r in rows(node))

        until(told, what=f"{total} steps of the liar")

    def close(self):
        self.sock.close()
        self.page.close()


@pytest.mark.parametrize("how", ["counters", "parity"])
def test_a_page_that_begins_to_lie_is_dropped_and_the_others_are_watched_on(node, how):
    node.daemon("--http", "127.0.0.1:0")
    training = node.train(0.01)
    liar = Liar(node, "ab" * 16)
    liar.steps(100)
    liar.seen(node, 100)

    if how == "counters":
        liar.steps(99)
    else:
        liar.lock()
    answer = pages.receive(liar.sock)

    said = "steps_total fell from 100 to 99" if how == "counters" else "its lock is stuck"
    assert answer == wire.Reject(said)
    assert pages.receive(liar.sock) is None
    until(lambda: metric(node, "pymon_pages_refused_total") == 1, what="the count")
    ends = lambda: {row["script"]: row["ended"] for row in rows(node)}  # noqa: E731
    wanted = {"liar.py": f"page dropped: {said}", "training.py": None}
    until(lambda: ends() == wanted, what="the end of the liar alone")
    steps = metric(node, "pymon_steps_total{")  # the living one's, which stands first
    until(lambda: metric(node, "pymon_steps_total{") > steps + 20, what="more steps")
    assert training.poll() is None
    assert boxes(node, os.getpid()) == []  # it lives, and its page is worth nothing
    liar.close()


EXECS = """
import os, runpy, sys
sys.argv = [sys.argv[0], "0.005", *sys.argv[1:]]
try:
    runpy.run_path({training!r}, run_name="__main__")
except SystemExit:
    pass
os.execv(sys.executable, [sys.executable, {training!r}, "0.005", "100000"])
"""


def test_an_image_that_execv_replaced_has_ended_and_the_new_one_counts_from_zero(node):
    node.daemon("--http", "127.0.0.1:0")
    env = training_environment(os.environ, "test", node.socket)
    code = EXECS.format(training=str(TRAINING))
    training = node.start([sys.executable, "-c", code, "200"], env)
    first = until(lambda: rows(node), what="the first image")[0]
    assert first["pid"] == training.pid

    (kept,) = until(lambda: boxes(node, training.pid), what="the first image's box")
    shown = node.pymon("blackbox", kept["file"], "--json")
    box = json.loads(shown.stdout)
    assert box["ended"] in ("replaced by exec", "disconnected")  # the latter: torch took longer
    assert [step["step"] for step in box["steps"]] == list(range(1, 201))

    def running():
        return [row for row in rows(node) if row["steps"] > 20 and row["ended"] is None]

    (row,) = until(running, what="the second image")
    assert (row["pid"], row["steps"] < 200) == (training.pid, True)
    until(lambda: (metric(node, "pymon_process_up{") or 0) == 1, what="its metrics")
    steps = metric(node, "pymon_steps_total{")
    until(lambda: metric(node, "pymon_steps_total{") > steps, what="steps of the new image")
    assert training.poll() is None


# Each child trains, so each is a rank with a page, a thread and a connection of its own.
MANY = f"""
import os, sys, time
import pymon, torch
torch.set_num_threads(1)
pymon.attach()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
read, write = os.pipe()
children = []
for rank in range({RANKS}):
    pid = os.fork()
    if pid:
        children.append(pid)
        continue
    os.close(write)
    os.environ["RANK"] = str(rank)
    os.read(read, 1)  # until all are there
    for _ in range(5):
        optimizer.zero_grad(); model(torch.ones(2)).sum().backward(); optimizer.step()
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.5)
    os._exit(0)
os.close(write)
print("go", flush=True)
print(sum(os.waitpid(pid, 0)[1] for pid in children), flush=True)
"""


def test_64_processes_that_attach_at_once_are_all_watched(node):
    node.daemon("--http", "off")
    env = training_environment(os.environ, "test", node.socket)
    enough = node.folder / "enough"
    launcher = node.start([sys.executable, "-c", MANY, str(enough)], env)
    assert launcher.stdout.readline() == "go\n"

    until(lambda: {r["rank"] for r in rows(node) if r["steps"] == 5} == set(range(RANKS)), 120)
    enough.touch()
    assert launcher.stdout.readline() == "0\n"
    until(lambda: all(row["ended"] for row in rows(node)), 120, "their ends")

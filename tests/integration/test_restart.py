"""The daemon dies in mid-training and comes back: training never notices, and no step is lost."""

import contextlib
import json
import signal
import time
import urllib.error
import urllib.request

from tests.integration.node import until
from tests.waiting import PATIENCE_S


def process_of(node):
    status = node.pymon("status", "--json", "--socket", node.socket)
    processes = json.loads(status.stdout)["processes"] if status.returncode == 0 else []
    return processes[0] if processes else None


def steps_of(node):
    return (process_of(node) or {}).get("steps", 0)


def metric(node, name):
    with contextlib.suppress(urllib.error.HTTPError):  # before the first tick
        with urllib.request.urlopen(f"{node.http}/metrics", timeout=PATIENCE_S) as page:
            lines = page.read().decode().splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(name)), None)
    return None


def test_the_step_count_goes_on_without_a_gap(node):
    daemon = node.daemon("--http", "127.0.0.1:0")
    training = node.train(0.01)
    before = until(lambda: steps_of(node), what="the first steps")

    daemon.kill()
    daemon.wait()
    time.sleep(1.0)  # steps that no daemon sees
    node.daemon("--http", "127.0.0.1:0")
    after = until(lambda: process_of(node), what="the trainer's connection")

    assert after["pid"] == training.pid
    until(lambda: steps_of(node) > before + 20, what="20 steps more")
    until(lambda: (metric(node, "pymon_steps_total") or 0) > before + 20, what="their metric")
    assert metric(node, "pymon_steps_lost_total") == 0  # the ring still held what happened between
    assert training.poll() is None


def test_training_goes_on_where_the_daemon_hangs(node):
    daemon = node.daemon("--http", "off")
    enough = node.folder / "enough"
    training = node.train(0.005, enough)
    until(lambda: process_of(node), what="the probe")
    daemon.send_signal(signal.SIGSTOP)
    steps = int(training.stdout.readline())
    while int(training.stdout.readline()) < steps + 300:
        pass
    enough.touch()

    assert training.wait(PATIENCE_S) == 0
    daemon.send_signal(signal.SIGCONT)


def test_the_daemon_ends_with_a_trainer_attached(node):
    daemon = node.daemon("--http", "127.0.0.1:0")
    node.train(0.01)
    until(lambda: process_of(node), what="the probe")

    daemon.terminate()

    assert daemon.wait(PATIENCE_S) == 0
    assert not node.socket.exists()


def test_sigusr1_captures_what_is_attached(node):
    daemon = node.daemon("--http", "off")
    node.train(0.01)
    until(lambda: process_of(node), what="the probe")

    daemon.send_signal(signal.SIGUSR1)

    captures = node.folder / "state" / "captures"
    report = until(lambda: list(captures.glob("2*/report.html")), what="the report")
    assert "<html" in report[0].read_text()
    assert (
        json.loads((report[0].parent / "manifest.json").read_text())["request"]["cause"] == "signal"
    )

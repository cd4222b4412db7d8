"""An unmodified script, with Kineto's own daemon mode: captured without a probe in it."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.integration.node import ROOT, TRAINING, until
from tests.waiting import PATIENCE_S

pytestmark = (
    pytest.mark.slow
)  # Kineto asks each five seconds, and is answered with an order the third time


@pytest.fixture
def unmodified(node, monkeypatch):
    """The script's process and a daemon that it asks for orders."""
    # Short: Kineto puts a name of 52 characters behind it, and a socket's path has 107 at most.
    sockets = tempfile.mkdtemp(prefix="kineto")
    monkeypatch.setenv("KINETO_IPC_SOCKET_DIR", sockets)
    node.daemon("--http", "off", "--kineto")
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYMON")}
    env |= {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": sockets}
    process = subprocess.Popen(
        [sys.executable, str(TRAINING), "0.01"],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    node.processes.append(process)
    yield process
    shutil.rmtree(sockets)


def test_capture_by_pid_leaves_a_valid_trace(node, unmodified):
    assert unmodified.stdout.readline() == "10\n"

    def capture():
        done = node.pymon(
            "capture", "--pid", unmodified.pid, "--json", "--socket", node.socket, timeout_s=150
        )
        return json.loads(done.stdout) if done.returncode == 0 else None

    # Refused with advice until the process has asked for the first time.
    body = until(capture, 2 * PATIENCE_S, "a written capture", pause_s=1.0)

    (receipt,) = body["receipts"]
    assert (receipt["kind"], receipt["status"]) == ("kineto", "written")
    with gzip.open(f"{body['folder']}/{receipt['files'][0]['name']}") as file:
        events = json.load(file)["traceEvents"]
    assert sum(event.get("cat") == "cpu_op" for event in events) > 100
    assert body["report"]
    assert unmodified.poll() is None


def test_an_unknown_pid_is_refused_with_advice(node):
    node.daemon("--http", "off")

    done = node.pymon("capture", "--pid", 1, "--socket", node.socket)

    assert done.returncode == 1
    assert "refused" in done.stdout
    assert "KINETO_USE_DAEMON=1" in done.stdout


def test_without_a_daemon_it_says_so_in_one_line(node):
    done = node.pymon("capture", "--all", "--socket", node.socket)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "no daemon answers" in done.stderr

"""A node's daemon runs as root, trainings as their users: captured through a spool that both can use."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pymon.cli.child_env import training_environment
from tests.integration.node import ROOT, TRAINING, Node, until
from tests.waiting import PATIENCE_S

USER = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start for other users")


def group_that_may_read_all():
    """The group with which that user can import what this one runs; None where none can."""
    for group in (USER, 0):  # root's group, where this Python lies in root's home
        command = [sys.executable, "-c", "import torch, pymon"]
        try:
            subprocess.run(command, cwd=ROOT, user=USER, group=group, extra_groups=[], check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return group
    return None


@pytest.fixture
def open_node(monkeypatch):
    """A node below a folder that every user may enter, with Kineto's sockets in a folder that it may write."""
    pytest.importorskip("torch", reason="torch is not installed")
    group = group_that_may_read_all()
    if group is None:
        pytest.skip(f"user {USER} may not read this Python")
    folder = Path(tempfile.mkdtemp(prefix="pymon"))
    folder.chmod(0o755)
    (folder / "k").mkdir()
    (folder / "k").chmod(0o1777)
    monkeypatch.setenv("KINETO_IPC_SOCKET_DIR", str(folder / "k"))
    node = Node(folder)
    node.group = group
    yield node
    node.end()
    shutil.rmtree(folder)


def train_as_user(node, env):
    process = subprocess.Popen(
        [sys.executable, str(TRAINING), "0.01"],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        user=USER,
        group=node.group,
        extra_groups=[],
        umask=0o077,  # nothing of its files is for others
    )
    node.processes.append(process)
    return process


def written(node, pid, kind):
    """The trace's events once a capture was written; None as long as none was."""
    done = node.pymon("capture", "--pid", pid, "--json", "--socket", node.socket, timeout_s=150)
    if done.returncode != 0:
        return None
    body = json.loads(done.stdout)
    (receipt,) = body["receipts"]
    assert receipt["kind"] == kind
    with gzip.open(f"{body['folder']}/{receipt['files'][0]['name']}") as file:
        return json.load(file)["traceEvents"]


def test_a_probed_training_of_another_user_is_captured_and_the_spool_is_tidy(open_node):
    open_node.daemon("--http", "off")
    process = train_as_user(open_node, training_environment(os.environ, "test", open_node.socket))

    assert until(lambda: written(open_node, process.pid, "torch"), what="a capture")

    spool = open_node.folder / "state" / "spool"
    assert list(spool.iterdir()) == []
    assert oct(spool.stat().st_mode & 0o7777) == "0o3733"
    (capture,) = (open_node.folder / "state" / "captures").iterdir()
    assert {path.stat().st_uid for path in capture.iterdir()} == {0}
    assert capture.stat().st_mode & 0o007 == 0


@pytest.mark.slow
def test_an_unmodified_training_of_another_user_is_captured(open_node):
    open_node.daemon("--http", "off", "--kineto")
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYMON")}
    process = train_as_user(open_node, env | {"KINETO_USE_DAEMON": "1"})

    events = until(lambda: written(open_node, process.pid, "kineto"), 2 * PATIENCE_S, "a capture")

    assert any(event.get("cat") == "cpu_op" for event in events)
    assert list((open_node.folder / "state" / "spool").iterdir()) == []
    assert process.poll() is None

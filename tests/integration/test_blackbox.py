"""A trainer dies; what it did last, and of what it died, can still be read."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.integration.node import ROOT, TRAINING
from tests.waiting import until

ENDS = [
    (signal.SIGKILL, "killed by SIGKILL"),
    (signal.SIGTERM, "killed by SIGTERM"),
    (signal.SIGSEGV, "killed by SIGSEGV"),
]


def box(node, pid, *more):
    """The newest one of that process, once it is kept."""
    command = ("blackbox", pid, "--socket", node.socket, *more)
    return until(lambda: (done := node.pymon(*command)).returncode == 0 and done, 60, "the box")


def trained(training, steps=30):
    """Waits until it says that it has made so many steps."""
    while int(training.stdout.readline()) < steps:
        pass


@pytest.mark.parametrize(("number", "said"), ENDS)
def test_a_killed_trainer_shows_its_last_steps_and_the_signal(node, number, said):
    node.daemon("--http", "off")
    training = node.train(0.005)
    trained(training)

    training.send_signal(number)
    training.wait()

    found = json.loads(box(node, training.pid, "--json").stdout)
    assert found["ended"] in (said, "unknown")  # before Linux 6.15 the kernel may have forgotten it
    assert found["pid"] == training.pid
    steps = [step["step"] for step in found["steps"]]
    assert steps[0] == 1
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= 30
    assert found["steps_total"] in (len(steps), None)
    text = box(node, training.pid).stdout
    assert f"pid {training.pid}, training.py" in text
    assert f"{steps[-1]:,}" in text
    assert found["ended"] in text


def test_under_pymon_run_the_box_outlives_the_daemon_and_opens_in_perfetto(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYMON")}
    env |= {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    env["PYMON_SOCKET"] = str(tmp_path / "nobody.sock")
    (tmp_path / "run").mkdir(mode=0o700)
    killed = (
        f"import os, runpy, sys, threading; sys.argv = ['x', '0.005']\n"
        f"threading.Timer(12, os.kill, (os.getpid(), 9)).start()\n"
        f"print(os.getpid(), flush=True); runpy.run_path({str(TRAINING)!r})"
    )

    def pymon(*command):
        command = [sys.executable, "-m", "pymon", *map(str, command)]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)

    run = pymon("run", "--", sys.executable, "-c", killed)
    assert run.returncode == -signal.SIGKILL
    assert "ended: killed by SIGKILL" in run.stderr
    pid = int(run.stdout.split()[0])

    shown = pymon("blackbox", pid, "--trace", tmp_path / "trace.json")
    assert shown.returncode == 0, shown.stderr
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in events]
    assert "step 1" in names
    assert names[-1] == "ended: killed by SIGKILL"
    listed = json.loads(pymon("blackbox", "--list", "--json").stdout)
    assert [row["pid"] for row in listed] == [pid]
    assert pymon("blackbox", listed[0]["file"]).returncode == 0


def test_an_unknown_pid_is_told_and_a_file_that_is_none_too(node, tmp_path):
    node.daemon("--http", "off")
    (tmp_path / "x").write_bytes(b"\x1f\x8bnonsense")

    unknown = node.pymon("blackbox", 1, "--socket", node.socket)
    broken = node.pymon("blackbox", tmp_path / "x")

    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "no black box of process 1" in unknown.stderr
    assert broken.returncode == 2
    assert "no black box of pymon" in broken.stderr
    assert "Traceback" not in unknown.stderr + broken.stderr

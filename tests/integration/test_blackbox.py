"""A trainer dies; what it did last, and of what it died, can still be read."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pymon.cli.child_env import training_environment
from tests.integration.node import ROOT, TRAINING
from tests.waiting import PATIENCE_S, until

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


SAVES = """
import gc, os, sys, time
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
gc.disable()
for step in range(10):
    optimizer.zero_grad(); model(torch.ones(8)).sum().backward(); optimizer.step()
    if step == 4:
        torch.save(model.state_dict(), sys.argv[1])
class Slow:
    def __reduce__(self):
        print("saving", flush=True)
        time.sleep(300)
torch.save(Slow(), sys.argv[1])
"""


def test_a_trainer_that_is_killed_in_a_save_shows_it_and_its_last_event(node):
    node.daemon("--http", "off")
    env = training_environment(os.environ, "test", node.socket)
    training = node.start([sys.executable, "-c", SAVES, str(node.folder / "checkpoint")], env)
    assert training.stdout.readline() == "saving\n"
    until(lambda: node.pymon("status", "--socket", node.socket).stdout.count(str(training.pid)))
    training.kill()
    training.wait()

    found = json.loads(box(node, training.pid, "--json").stdout)
    assert found["state"] == "checkpointing"
    assert found["steps_total"] == 10
    last = found["events"][-1]
    assert (last["kind"], last["step"]) == ("checkpoint_save", 6)
    text = box(node, training.pid).stdout
    assert "checkpointing for" in text
    assert "event   checkpoint_save of" in text


@pytest.fixture
def memory_group():
    """A control group of this machine, for memory; its end is waited for."""
    base = Path("/sys/fs/cgroup")
    second = (base / "cgroup.controllers").exists()
    folder = base / ("" if second else "memory") / f"pymon-test-{os.getpid()}"
    limit = folder / ("memory.max" if second else "memory.limit_in_bytes")
    try:
        folder.mkdir()
    except OSError as err:
        pytest.skip(f"no control group of memory can be made here: {err}")
    if not limit.exists():
        folder.rmdir()
        pytest.skip("this machine's control groups have no memory controller")
    for unswapped in ("memory.swap.max", "memory.swappiness"):
        with contextlib.suppress(OSError):
            (folder / unswapped).write_text("0")
    yield folder, limit

    def removed():
        try:
            folder.rmdir()
        except OSError:  # its processes are still ending
            return False
        return True

    until(removed, what="the group's end")


EATS = """
import sys
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad(); model(torch.ones(8)).sum().backward(); optimizer.step()
train(20)
print("trained", flush=True)
sys.stdin.readline()
kept = []
while True:
    kept.append(b"x" * (8 << 20))
    train(1)
"""


def test_a_trainer_that_the_out_of_memory_killer_ended_is_named_so(memory_group, node):
    folder, limit = memory_group
    node.daemon("--http", "off")
    env = training_environment(os.environ, "test", node.socket)
    enter = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"]
    training = node.start([*enter, sys.executable, "-c", EATS], env, stdin=subprocess.PIPE)
    assert training.stdout.readline() == "trained\n"
    until(lambda: str(training.pid) in node.pymon("status", "--socket", node.socket).stdout)
    limit.write_text(str(1 << 30))
    training.stdin.write("\n")
    training.stdin.flush()
    assert training.wait(PATIENCE_S) == -signal.SIGKILL
    training.stdin.close()

    found = json.loads(box(node, training.pid, "--json").stdout)
    assert found["ended"] in ("killed by SIGKILL, out of memory", "unknown")
    lines = [line for line in found["evidence"] if line.startswith("control group /pymon-test-")]
    assert len(lines) == 1
    assert "out-of-memory kills rose from 0 to 1" in lines[0]


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

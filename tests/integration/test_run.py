"""`pymon run` where no daemon watches the node: the first contact."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.node import ROOT, TRAINING, until
from tests.waiting import PATIENCE_S

DISTRIBUTED = Path(__file__).with_name("distributed.py")


@pytest.fixture
def run(tmp_path):
    """Starts `pymon run` in a home of its own, so that no daemon of the machine answers."""
    pytest.importorskip("torch", reason="torch is not installed")
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYMON")}
    env |= {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    env["PYMON_SOCKET"] = str(tmp_path / "nobody.sock")
    (tmp_path / "run").mkdir(mode=0o700)
    started = []

    def start(*command, options=()):
        arguments = [sys.executable, "-m", "pymon", "run", *options, "--", *map(str, command)]
        process = subprocess.Popen(
            arguments, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def report_of(text):
    return Path(re.search(r"report +(\S+report\.html)", text).group(1))


def test_summary_and_report_stand_at_the_end_and_output_is_the_trainings_own(run):
    process = run(sys.executable, TRAINING, 0.005, 400)
    out, err = process.communicate(timeout=2 * PATIENCE_S)

    assert process.returncode == 0
    assert out.splitlines() == [str(step) for step in range(10, 401, 10)]
    assert re.search(r"400 steps, median [\d.]+ ms", err)
    page = report_of(err).read_text()
    assert "Where the time went" in page
    assert "training.py" in page


@pytest.mark.parametrize("options", [(), ("--no-summary",), ("--no-daemon",)])
def test_the_exit_code_passes_through(run, options):
    process = run(sys.executable, "-c", "import sys; sys.exit(7)", options=options)
    _, err = process.communicate(timeout=2 * PATIENCE_S)

    assert process.returncode == 7
    if options:
        assert err == ""


def test_both_ranks_of_torchrun_are_in_the_summary(run):
    ranks = ["--standalone", "--nproc-per-node=2"]  # at a port of its own
    process = run(sys.executable, "-m", "torch.distributed.run", *ranks, DISTRIBUTED)
    _, err = process.communicate(timeout=2 * PATIENCE_S)

    assert process.returncode == 0, err
    assert re.search(r"rank 0 +120 steps", err)
    assert re.search(r"rank 1 +120 steps", err)
    assert report_of(err).exists()


def test_a_signal_reaches_the_training_and_ends_both_alike(run):
    process = run(sys.executable, TRAINING, 0.01)
    assert process.stdout.readline() == "10\n"

    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=2 * PATIENCE_S)

    assert process.returncode == -signal.SIGTERM
    assert "steps, median" in err


def test_nothing_is_left_running(run, tmp_path):
    run(sys.executable, TRAINING, 0.001, 50).communicate(timeout=2 * PATIENCE_S)

    until(lambda: not any(str(tmp_path) in one for one in processes()), what="the end of all")


def processes():
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found

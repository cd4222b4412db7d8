"""`pymon capture --counters` of a training process, through a real daemon; its GPU and CUPTI are doubles."""

import json
import os
import subprocess
import sys

import pytest

from pymon import native
from tests.integration.node import ROOT, until
from tests.native.build import gpu_doubles

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.timeout(600),  # the first one builds
    pytest.mark.skipif(native.probe()[0] is None, reason=native.probe()[1]),
]


@pytest.fixture
def trainer(node):
    """Starts a trainer on the doubles, in an environment of its own; gives it once the daemon knows its GPU layers."""

    def start(**variables):
        node.daemon("--http", "off")
        env = {**os.environ, "LD_LIBRARY_PATH": str(gpu_doubles()), **variables}
        env["PYMON_SOCKET"] = str(node.socket)
        command = [sys.executable, "-m", "tests.probe.gpu_double", "20"]
        pipe = subprocess.PIPE  # it ends with its stdin
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True)
        node.processes.append(process)
        until(lambda: cupti_of(node) == "running", timeout_s=60, what="the activity layer")
        return process

    return start


def cupti_of(node):
    status = node.pymon("status", "--json", "--socket", node.socket)
    processes = json.loads(status.stdout)["processes"] if status.returncode == 0 else []
    return processes[0]["cupti"] if processes else None


def burst(node, pid, *more):
    options = ("--pid", pid, "--counters", "--seconds", 0.3, "--socket", node.socket)
    return node.pymon("capture", *options, *more)


def test_a_burst_of_counters_and_the_activity_layer_goes_on_after_it(node, trainer):
    process = trainer()
    done = burst(node, process.pid)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "clocks are locked meanwhile" in done.stderr
    assert f"pid {process.pid}: written" in done.stdout
    assert "NVIDIA H200 (double) (GH100), whole GPU" in done.stdout
    assert "SM active           60." in done.stdout
    assert "DRAM                1.9 MiB/s" in done.stdout
    assert (
        "SM clock            before unknown, in the burst 1,500 MHz, after unknown" in done.stdout
    )
    (path,) = (node.folder / "state" / "captures").glob(f"*/pid{process.pid}.counters.json")
    assert json.loads(path.read_text())["samples_total"] > 400
    until(lambda: cupti_of(node) == "running", what="the activity layer, again")

    body = json.loads(burst(node, process.pid, "--json").stdout)
    (counted,) = body["counters"]
    assert counted["sm_active_ratio"] == pytest.approx(0.6, rel=0.02)
    assert counted["sm_clock_before_hz"] is None
    assert body["receipts"][0]["kind"] == "counters"
    assert process.poll() is None


def test_a_refusal_reaches_the_terminal_in_words(node, trainer):
    process = trainer(DOUBLE_CUPTI_FAIL="cuptiPmSamplingEnable=35")
    done = burst(node, process.pid)

    assert done.returncode == 1
    assert "refused: no permission to read GPU counters (ERR_NVGPUCTRPERM)" in done.stdout
    assert list((node.folder / "state" / "captures").iterdir()) == []


def test_a_hang_in_cupti_leaves_trainer_and_daemon_alone(node, trainer):
    process = trainer(DOUBLE_CUPTI_HANG="cuptiPmSamplingStart=1")
    done = burst(node, process.pid)

    assert done.returncode == 1
    assert "failed: a call of CUPTI's had not returned after 15 s" in done.stdout
    assert process.poll() is None
    until(lambda: cupti_of(node) == "running", what="the activity layer, again")

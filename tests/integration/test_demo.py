"""The demo: a real daemon, a real training, a planted fault, and its name at the end."""

import json
from pathlib import Path

import pytest

from pymon.demo.faults import TRAIN, planted_line

torch = pytest.importorskip("torch", reason="torch is not installed")

# On a busy machine the demo begins anew where something is noticed before its fault.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("fault", "rule"), [("data-loader", "input_starved"), ("sync", "implicit_sync")]
)
def test_it_names_the_planted_fault(node, fault, rule):
    done = node.pymon(
        "demo", "--fault", fault, "--json", "--keep", node.folder / "demo", timeout_s=500
    )

    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["named"]
    diagnosis = told["capture"]["diagnoses"][0]
    assert diagnosis["rule"] == rule
    assert {receipt["status"] for receipt in told["capture"]["receipts"]} == {"written"}
    assert Path(told["report"]).is_relative_to(node.folder / "demo")
    if fault == "sync":
        assert (str(TRAIN), planted_line()) in {(s["file"], s["line"]) for s in diagnosis["sites"]}
    if not torch.cuda.is_available():
        assert "GPU" not in diagnosis["title"]

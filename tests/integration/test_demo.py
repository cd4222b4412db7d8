"""The demo: a real daemon, a real training, a planted fault, and its name at the end."""

import json

import pytest

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
    assert rule in json.dumps(told)
    if fault == "sync":
        assert "demo/train.py" in json.dumps(told)
        assert "GPU" not in told.get("title", "")

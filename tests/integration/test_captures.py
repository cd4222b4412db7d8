"""Captures of real training, through a real daemon and its command."""

import gzip
import json

from tests.integration.node import until

CAPTURES = 25  # a boundary handled wrongly crashed the trainer once in about that many


def test_capture_after_capture_does_the_training_no_harm(node):
    node.daemon("--http", "off")
    training = node.train(0.005)
    until(lambda: attached(node), what="the probe")

    for _ in range(CAPTURES):
        done = node.pymon("capture", "--all", "--json", "--socket", node.socket)
        assert done.returncode == 0, done.stdout + done.stderr
        assert [one["status"] for one in json.loads(done.stdout)["receipts"]] == ["written"]

    assert training.poll() is None


def test_capture_by_pid_names_its_files_and_goes_through_a_refusal(node):
    node.daemon("--http", "off")
    training, other = node.train(0.005), node.train(0.005)
    until(lambda: len(attached(node) or ()) == 2, what="both probes")

    done = node.pymon("capture", "--pid", training.pid, "--pid", 1, "--socket", node.socket)

    assert done.returncode == 0, done.stderr
    assert f"pid {training.pid}: written" in done.stdout
    assert "pid 1: refused: no probe is attached there" in done.stdout
    assert f"pid {other.pid}" not in done.stdout
    (trace,) = (node.folder / "state" / "captures").glob(f"*/*pid{training.pid}.trace.json.gz")
    assert str(trace) in done.stdout
    assert any(
        event.get("ph") == "X"
        for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    )


def attached(node):
    status = node.pymon("status", "--json", "--socket", node.socket)
    return status.returncode == 0 and json.loads(status.stdout)["processes"]

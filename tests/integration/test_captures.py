"""Captures of real training, through a real daemon and its command."""

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


def attached(node):
    status = node.pymon("status", "--json", "--socket", node.socket)
    return status.returncode == 0 and json.loads(status.stdout)["processes"]

"""`pymon disarm` and `pymon arm` on real training."""

import json
import time

from tests.integration.node import until


def rows(node):
    status = node.pymon("status", "--json", "--socket", node.socket)
    return json.loads(status.stdout) if status.returncode == 0 else {"processes": []}


def steps(node):
    return [row["steps"] for row in rows(node)["processes"]]


def until_shed(node, wanted):
    """Waits until the status, which is as old as a tick, tells what each process (by pid) leaves away."""
    shed = lambda: {row["pid"]: row["shed"] for row in rows(node)["processes"]}  # noqa: E731
    until(lambda: shed() == wanted, what=f"{wanted}")


def test_a_disarmed_training_counts_nothing_over_a_restart_of_the_daemon_until_it_is_armed(node):
    daemon = node.daemon("--http", "off")
    training = node.train(0.01)
    until(lambda: steps(node) and steps(node)[0] > 10, 60, "the first steps")

    disarmed = node.pymon("disarm", "--socket", node.socket)
    assert (disarmed.returncode, disarmed.stdout) == (0, "1 of 1 running probes are quiet\n")
    until_shed(node, {training.pid: "off"})
    before = steps(node)
    assert rows(node)["disarmed"][0]["job"] == "all jobs"
    training.stdout.readline()
    for _ in range(5):  # fifty steps go by
        training.stdout.readline()
    assert steps(node) == before

    daemon.kill()
    daemon.wait()
    node.daemon("--http", "off")
    until_shed(node, {training.pid: "off"})
    late = node.train(0.01)
    until_shed(node, {training.pid: "off", late.pid: "off"})

    armed = node.pymon("arm", "--socket", node.socket)
    assert (armed.returncode, armed.stdout) == (0, "2 of 2 running probes are at work\n")
    until(lambda: min(steps(node)) > before[0] + 10, 60, "steps")
    assert rows(node)["disarmed"] == []
    assert training.poll() is None


def test_disarm_of_one_job_leaves_the_others_alone(node, monkeypatch):
    node.daemon("--http", "off")
    monkeypatch.setenv("PYMON_JOB_ID", "a")
    one = node.train(0.01)
    monkeypatch.setenv("PYMON_JOB_ID", "b")
    other = node.train(0.01)
    until(lambda: len([n for n in steps(node) if n > 5]) == 2, 60, "both")

    assert node.pymon("disarm", "--job", "a", "--socket", node.socket).returncode == 0

    until_shed(node, {one.pid: "off", other.pid: None})


def test_within_five_seconds(node):
    node.daemon("--http", "off")
    node.train(0.01)
    until(lambda: steps(node), 60, "the probe")
    began_s = time.monotonic()

    disarmed = node.pymon("disarm", "--socket", node.socket)

    assert disarmed.returncode == 0  # 1 where a probe had not obeyed five seconds after it was told
    assert time.monotonic() - began_s < 50  # the command's own start, on a loaded machine, included

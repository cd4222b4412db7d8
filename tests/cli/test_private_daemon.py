"""One private daemon per user, node and job: who starts it, who joins it, who is the last."""

from __future__ import annotations

import json
import re

import pytest

from pymon.cli import private_daemon
from pymon.cli.private_daemon import PrivateDaemon, job_key, new_run_id, runtime_folder


@pytest.fixture(autouse=True)
def own_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for names in private_daemon._JOB_VARIABLES:
        for name in names:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def starts(monkeypatch):
    """No daemon is started; the run ids of those that would have been."""
    started = []

    def start(folder, run_id, kineto, state_dir):
        started.append(run_id)
        state_dir.mkdir(parents=True)
        info = {"run_id": run_id, "socket": str(folder / "x.sock"), "state_dir": str(state_dir)}
        (folder / "run.json").write_text(json.dumps(info))

    monkeypatch.setattr(private_daemon, "_start", start)
    return started


def test_the_tasks_of_one_job_share_a_daemon(monkeypatch, starts):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    tasks = [PrivateDaemon.join(f"r{task}", kineto=False) for task in range(3)]

    assert starts == ["r0"]
    assert [task.run_id for task in tasks] == ["r0"] * 3
    assert [task.is_last() for task in tasks] == [False, False, True]
    for task in tasks:
        task.leave(end=True)
    assert list(runtime_folder().iterdir()) == []


def test_job_steps_and_runs_outside_a_job_have_their_own(monkeypatch):
    assert job_key() != job_key()
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    first = job_key()
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    assert job_key() != first


def test_a_daemon_of_a_finished_step_is_not_joined(monkeypatch, starts):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    first = PrivateDaemon.join("r0", kineto=False)
    assert first.is_last()

    second = PrivateDaemon.join("r1", kineto=False)

    assert second.run_id == "r1"
    second.leave(end=True)
    first.leave(end=True)


def test_what_a_killed_run_left_is_swept(starts, tmp_path):
    left = PrivateDaemon.join("r0", kineto=False)
    left._users.close()  # the kernel does this for a killed process
    assert left.socket.parent.is_dir()

    PrivateDaemon.join("r1", kineto=False).leave(end=False)

    assert not left.socket.parent.exists()


def test_a_folder_that_others_can_enter_is_not_used(tmp_path):
    (tmp_path / "pymon").mkdir(mode=0o777)
    (tmp_path / "pymon").chmod(0o777)

    other = runtime_folder()

    assert other != tmp_path / "pymon"
    other.rmdir()


@pytest.mark.parametrize("name", ["train", "../../etc", "ünï cødé", "", "x" * 200])
def test_a_run_id_is_safe_in_a_path(name):
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", new_run_id(name))

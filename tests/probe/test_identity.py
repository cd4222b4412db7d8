"""Who a process says it is."""

import pytest

from pymon.probe import identity

ALL = (*identity._RANK, *identity._LOCAL_RANK, *identity._WORLD_SIZE, *identity._JOB)


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in (*ALL, "PYMON_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


def test_unknown_is_none_or_empty():
    hello = identity.hello("ab")
    assert (hello.rank, hello.local_rank, hello.world_size) == (None, None, None)
    assert (hello.job_id, hello.run_id) == ("", "")


def test_torchrun_comes_before_slurm(monkeypatch):
    for name, value in {"RANK": "5", "SLURM_PROCID": "1", "SLURM_JOB_ID": "77"}.items():
        monkeypatch.setenv(name, value)
    assert (identity.hello("ab").rank, identity.hello("ab").job_id) == (5, "77")


def test_a_name_given_by_hand_comes_before_all(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("PYMON_JOB_ID", "mine")
    assert identity.hello("ab").job_id == "mine"


def test_torchruns_none_is_no_name(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert identity.hello("ab").job_id == ""


@pytest.mark.parametrize("text", ["", "-1", "three", " "])
def test_a_rank_that_is_no_number_is_unknown(monkeypatch, text):
    monkeypatch.setenv("RANK", text)
    assert identity.hello("ab").rank is None


def test_arguments_are_never_told(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/home/me/train.py", "--token", "secret"])
    assert identity.hello("ab").script == "train.py"

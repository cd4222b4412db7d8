from pymon.daemon.host_rows import absent_rows, job_rows
from tests.exporters.hosts import snapshot


def test_jobs_with_their_gpus_and_who_holds_one_without_living():
    trainer, dead = job_rows(snapshot())

    assert trainer == {
        "pid": 100,
        "rank": 0,
        "job": "77",
        "user": "ann",
        "gpus": "0 1",
        "group": "job_77",
        "probe": True,
    }
    assert dead == {"pid": 9, "gpus": "1", "group": "gone"}


def test_what_is_absent_says_why_and_where():
    (row,) = absent_rows(snapshot())

    assert row == {
        "collector": "shm",
        "reading": "shm",
        "why": "no_permission",
        "count": 2,
        "example": "/proc/7/root: Permission denied",
    }


def test_before_the_first_tick():
    assert job_rows(None) == absent_rows(None) == []

"""Kind `kineto`, with a double of the socket in place of a process that asks."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pymon.capture import kineto_profile
from pymon.capture.budget import CaptureSettings
from pymon.capture.bundle import Bundle
from pymon.capture.kineto_profile import KinetoProfile
from pymon.sources.kineto import KinetoProcess

TARGET = KinetoProcess(os.getpid(), os.getuid(), True, time.monotonic())
EVENTS = '{"traceEvents": [{"ph": "X"}]}'


class KinetoDouble:
    """A process that fetches its order at once and writes `text`; None: it fetches, and writes nothing."""

    def __init__(self, text=EVENTS, fetches=True):
        self.text, self.fetches, self.withdrawn = text, fetches, False
        self.config = ""

    def request(self, pid, config):
        self.config = config
        path = Path(config.splitlines()[0].partition("=")[2])
        if self.fetches and self.text is not None:
            (path.parent / f"trace_{pid}.json").write_text(self.text)
        return True

    def delivered(self, pid):
        return self.fetches

    def withdraw(self, pid):
        self.withdrawn = True


@pytest.fixture
def capture(tmp_path, monkeypatch):
    for name in ("READY_WAIT_S", "WRITE_WAIT_S", "_LOOK_S"):
        monkeypatch.setattr(kineto_profile, name, 0.05)
    monkeypatch.delenv("KINETO_ONDEMAND_TRACE_DIR", raising=False)
    (tmp_path / "captures").mkdir()

    def run(kineto, spool=tmp_path / "spool", target=TARGET):
        spool.mkdir(exist_ok=True)
        bundle = Bundle(tmp_path / "captures", "c1")
        profile = KinetoProfile(CaptureSettings(), kineto, spool)
        receipt = asyncio.run(profile.capture("c1", target, bundle))
        assert list(spool.iterdir()) == [], "the spool was left untidy"
        return receipt, sorted(path.name for path in bundle._folder.iterdir())

    return run


def test_the_file_that_was_renamed_into_place_is_taken(capture):
    receipt, files = capture(KinetoDouble())

    assert receipt.status.value == "written"
    assert files == [f"pid{TARGET.pid}.trace.json.gz"]


@pytest.mark.parametrize(
    ("kineto", "reason"),
    [
        (KinetoDouble(fetches=False), "not fetched"),
        (KinetoDouble(text=None), "start the job with KINETO_ONDEMAND_TRACE_DIR="),
        (KinetoDouble(text='{"traceEvents": []}'), "holds no events"),
    ],
)
def test_what_did_not_come_has_its_name(capture, kineto, reason):
    receipt, files = capture(kineto)

    assert (receipt.status.value, files) == ("failed", [])
    assert reason in receipt.reason
    assert kineto.withdrawn is not kineto.fetches


def test_a_spool_that_kineto_could_not_parse_is_refused(capture, tmp_path):
    kineto = KinetoDouble()

    receipt, _ = capture(kineto, tmp_path / "a folder")

    assert receipt.status.value == "refused"
    assert kineto.config == ""


def test_a_folder_of_another_users_choice_is_not_used(tmp_path, monkeypatch):
    stranger = KinetoProcess(TARGET.pid, TARGET.uid + 1, True, 0.0)

    assert kineto_profile._trace_dir(stranger, tmp_path) == tmp_path


@pytest.mark.parametrize("kineto", [KinetoDouble(fetches=False), KinetoDouble(text=None)])
def test_a_process_that_ended_is_not_waited_for(capture, monkeypatch, kineto):
    monkeypatch.setattr(kineto_profile, "READY_WAIT_S", 3600)
    monkeypatch.setattr(kineto_profile, "WRITE_WAIT_S", 3600)
    ended = replace(TARGET, pid=2**22 + 1)  # beyond the kernel's largest

    receipt, _ = capture(kineto, target=ended)

    assert receipt.reason == "the process ended before its trace was written"


def test_a_trace_that_was_written_before_the_end_counts(capture):
    receipt, _ = capture(KinetoDouble(), target=replace(TARGET, pid=2**22 + 1))

    assert receipt.status.value == "written"


def test_a_process_that_asks_no_more_has_failed(capture, monkeypatch):
    kineto = KinetoDouble()
    monkeypatch.setattr(kineto, "request", lambda pid, config: False)

    assert capture(kineto)[0].reason == "the process asks for orders no more"


def test_a_user_that_a_daemon_without_rights_cannot_give_a_folder_is_refused(capture, monkeypatch):
    def forbidden(fd, uid, gid):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", forbidden)

    receipt, _ = capture(KinetoDouble(), target=replace(TARGET, uid=TARGET.uid + 1))

    assert receipt.status.value == "refused"
    assert "cannot be given to the process's user" in receipt.reason


def test_the_folder_that_the_jobs_own_environment_names_is_used(tmp_path):
    job = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env={"KINETO_ONDEMAND_TRACE_DIR": "/somewhere"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    job.stdout.readline()
    try:
        target = replace(TARGET, pid=job.pid)
        assert kineto_profile._trace_dir(target, tmp_path) == Path("/somewhere")
    finally:
        job.communicate(b"\n")
    assert kineto_profile._trace_dir(TARGET, tmp_path) == tmp_path

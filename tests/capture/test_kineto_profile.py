"""Kind `kineto`, with a double of the socket in place of a process that asks."""

import asyncio
import os
import time
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

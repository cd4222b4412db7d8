import gzip
import json
import os

import pytest

from pymon.capture.bundle import Bundle, _copy, clear_temporary, keep_within
from pymon.model.capture import CaptureKind, CaptureReceipt, CaptureRequest, ReceiptStatus

REQUEST = CaptureRequest("c1", (7,), 3, "manual", 0)
RECEIPT = CaptureReceipt("c1", CaptureKind.TORCH, 7, 0, ReceiptStatus.WRITTEN)
UID = os.getuid()


@pytest.fixture
def spool(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "trace.json").write_text('{"traceEvents": []}')
    return folder


@pytest.fixture
def captures(tmp_path):
    folder = tmp_path / "captures"
    folder.mkdir()
    return folder


def test_a_trace_is_taken_compressed_and_the_manifest_comes_last(captures, spool):
    bundle = Bundle(captures, "c1")
    file = bundle.take(spool, "trace.json", "pid7.trace.json.gz", UID, 1000)
    assert not (captures / "c1").exists()

    folder = bundle.finish(REQUEST, [RECEIPT])

    assert gzip.decompress((folder / file.name).read_bytes()) == b'{"traceEvents": []}'
    assert file.kind == "trace"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["receipts"][0]["status"] == "written"
    assert [path.name for path in captures.iterdir()] == ["c1"]


def test_only_a_regular_file_of_the_trainer_within_the_bound_is_taken(captures, spool, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    (spool / "link.json").symlink_to(secret)
    os.mkfifo(spool / "fifo.json")
    (spool / "folder.json").mkdir()
    bundle = Bundle(captures, "c1")

    for name in ("link.json", "fifo.json", "folder.json", "absent.json"):
        with pytest.raises(OSError):  # noqa: PT011 - which error depends on what lies there
            bundle.take(spool, name, "x.trace.json.gz", UID, 1000)
    with pytest.raises(PermissionError):
        bundle.take(spool, "trace.json", "x.trace.json.gz", UID + 1, 1000)
    with pytest.raises(ValueError, match="bytes"):
        bundle.take(spool, "trace.json", "x.trace.json.gz", UID, 3)


def test_a_spool_folder_that_is_a_link_is_not_followed(captures, spool, tmp_path):
    (tmp_path / "elsewhere").symlink_to(spool)

    with pytest.raises(OSError):  # noqa: PT011 - which error depends on what lies there
        Bundle(captures, "c1").take(
            tmp_path / "elsewhere", "trace.json", "x.trace.json.gz", UID, 1000
        )


def test_what_a_killed_daemon_left_is_cleared(captures):
    Bundle(captures, "c1")
    clear_temporary(captures)

    assert list(captures.iterdir()) == []


def test_the_oldest_go_first_and_the_newest_stays(captures):
    for age, name in enumerate(("new", "old", "older")):
        bundle = Bundle(captures, name)
        (bundle._folder / "data").write_bytes(b"x" * 1000)
        os.utime(bundle.finish(REQUEST, []), (1000 - age, 1000 - age))

    keep_within(captures, 2500)
    assert {path.name for path in captures.iterdir()} == {"new", "old"}

    keep_within(captures, 10)
    assert {path.name for path in captures.iterdir()} == {"new"}


def test_half_a_file_is_not_left_when_the_disk_fills_up(captures, spool, monkeypatch):
    def full(source, target, limit_bytes):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pymon.capture.bundle._copy", full)
    bundle = Bundle(captures, "c1")
    with pytest.raises(OSError, match="No space"):
        bundle.take(spool, "trace.json", "x.trace.json.gz", UID, 1000)

    assert list(bundle._folder.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "events"),
    [('{"traceEvents": []}', False), ('{"ph": "M"}', False), ('{"ph": "X"}', True)],
)
def test_a_trace_without_events_is_told_from_one_with(captures, spool, text, events):
    (spool / "trace.json").write_text(" " * (1024 * 1024 - 4) + text)  # across two reads
    bundle = Bundle(captures, "c1")
    bundle.take(spool, "trace.json", "x.trace.json.gz", UID, 2**21)

    assert bundle.has_events("x.trace.json.gz") is events


def test_captures_that_somebody_removes_meanwhile_are_no_trouble(captures):
    Bundle(captures, "whole").finish(REQUEST, [])
    half = captures / "half"
    half.mkdir()
    (captures / "notes.txt").write_text("of a person")
    (captures / "dangling").symlink_to(captures / "gone")

    keep_within(captures, 0)

    assert (captures / "whole").exists()
    assert (captures / "notes.txt").exists()
    assert half.exists(), "a folder without a manifest is no capture"


def test_a_file_that_grows_while_it_is_read_ends_at_the_bound(captures):
    class Growing:
        def read(self, size):
            return b"x" * size

    target = captures / "out"
    _copy(Growing(), target, 3 * 1024 * 1024 + 5)

    assert target.stat().st_size == 3 * 1024 * 1024 + 5


def test_a_discarded_capture_leaves_nothing(captures, spool):
    bundle = Bundle(captures, "c1")
    bundle.take(spool, "trace.json", "pid7.trace.json.gz", UID, 1000)
    bundle.discard()

    assert list(captures.iterdir()) == []


def test_two_captures_of_one_name_are_refused(captures):
    Bundle(captures, "c1")

    with pytest.raises(FileExistsError):
        Bundle(captures, "c1")

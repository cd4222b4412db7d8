import asyncio
import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from pymon.daemon import boxes as module
from pymon.daemon.boxes import Boxes, BoxFile, beyond, box_replies
from pymon.daemon.kernel_words import KernelWords
from pymon.daemon.peers import Peer
from pymon.link.kept_page import unpack
from pymon.link.page import PageReader
from pymon.link.wire import Hello
from pymon.sources.kmsg import KernelLog
from tests.clock_double import ClockDouble
from tests.daemon.pages import memfd_page


@dataclass
class Ended:
    """An attachment whose process is gone."""

    pid: int = 7
    uid: int = 1000
    ended: str | None = "killed by SIGKILL"
    host_pid: int | None = 7
    evidence: tuple[str, ...] = ("control group /job: out-of-memory kills rose from 0 to 1",)

    def __post_init__(self):
        fd = memfd_page()
        self.page = PageReader.open(fd)
        os.close(fd)
        self.hello = Hello("ab" * 16, self.pid, rank=3, script="train.py")


class KmsgDouble:
    """The kernel's log, of these records."""

    overruns_total = 0

    def __init__(self, *texts):
        self.texts = list(texts)

    def records(self):
        from pymon.sources.kmsg import Record

        while self.texts:
            yield Record(self.texts.pop(0), 2000.0)


def kept(folder, *ended, kernel=None, **bounds):
    """The folder's boxes, after these ends."""
    shelf = Boxes(folder, ClockDouble(1000.0), **bounds)
    shelf.kernel = KernelWords(kernel or KmsgDouble())
    shelf.start()
    for one in ended:
        shelf.keep(one)
    shelf.close(30)
    return shelf


def test_a_page_is_kept_with_who_it_was_and_how_it_ended(tmp_path):
    (box,) = kept(tmp_path, Ended()).files()
    page = unpack(box.path.read_bytes())

    assert (page.pid, page.uid, page.ended) == (7, 1000, "killed by SIGKILL")
    assert (page.hello.rank, page.hello.script) == (3, "train.py")
    assert page.reader().header.attach_id == "ab" * 16
    assert (box.pid, box.uid, box.ordinary) == (7, 1000, False)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Memory cgroup out of memory: Killed process 7 (python) total-vm:1kB", True),
        ("python[7]: segfault at 0 ip 00007f sp 00007f error 4 in libtorch.so", True),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, Ch 8", True),
        ("Out of memory: Killed process 77 (python)", False),
    ],
)
def test_what_the_kernel_said_of_this_process_stands_in_it_word_by_word(tmp_path, line, told):
    shelf = Boxes(tmp_path, ClockDouble(1000.0))
    shelf.kernel = KernelWords(KmsgDouble())
    shelf.start()
    shelf.kernel.log.texts.append(line)
    shelf.keep(Ended())
    shelf.close(30)

    evidence = unpack(shelf.files()[0].path.read_bytes()).evidence
    assert evidence == (*Ended().evidence, *([f"kernel log: {line}"] if told else []))


def test_without_the_right_to_read_the_kernels_log_there_is_a_box_all_the_same(tmp_path):
    log = KernelLog(tmp_path / "no-such-log")
    (box,) = kept(tmp_path, Ended(), kernel=log).files()
    assert unpack(box.path.read_bytes()).evidence == Ended().evidence


def file(number, uid=1000, ordinary=False, size=10):
    return BoxFile(Path(f"{number:04}"), number, uid, ordinary, size)


def removed(files, keep_max=100, max_bytes=1000):
    return [box.pid for box in beyond(files, keep_max, max_bytes)]


def test_within_the_bounds_nothing_goes_and_beyond_them_the_oldest():
    files = [file(number) for number in range(5)]
    assert removed(files) == []
    assert removed(files, keep_max=3) == [0, 1]
    assert removed(files, max_bytes=25) == [0, 1, 2]


def test_ordinary_ends_go_first_and_nobody_can_push_another_users_out():
    assert removed([file(0), file(1, ordinary=True), file(2)], keep_max=2) == [1]
    flood = [file(0, uid=5), *[file(number, uid=6) for number in range(1, 9)]]
    assert removed(flood, keep_max=4) == [1, 2, 3, 4, 5]


def test_the_folder_stays_within_its_bounds(tmp_path):
    shelf = kept(tmp_path, *[Ended(pid) for pid in range(10)], keep_max=4)
    assert len(shelf.files()) == 4


def test_a_full_disk_costs_the_box_and_is_counted_and_leaves_nothing(tmp_path, monkeypatch, caplog):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    shelf = kept(tmp_path, Ended(), Ended(8))

    assert shelf.lost_total == 2
    assert caplog.text.count("No space left on device") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_page_larger_than_a_page_can_be_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PAGE_MAX_BYTES", 1000)
    assert kept(tmp_path, Ended()).lost_total == 1


def asked(shelf, peer, *pids):
    async def main():
        return [reply async for reply in box_replies(shelf, peer, pids)]

    return asyncio.run(main())


def test_who_may_not_touch_a_process_gets_neither_its_box_nor_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 500)
    shelf = kept(tmp_path, Ended())

    assert asked(shelf, Peer(1, 1001))[-1].body == {"boxes": []}
    assert not asked(shelf, Peer(1, 1001), 7)[-1].ok
    assert [row["pid"] for row in asked(shelf, Peer(1, 1000))[-1].body["boxes"]] == [7]
    assert asked(shelf, Peer(1, 1000), 7)[-1].ok
    assert not asked(shelf, Peer(1, 0), 8)[-1].ok

import gzip
import json
import os

import pytest

from pymon.link import kept_page, layout
from pymon.link.kept_page import KeptPage, pack, unpack
from pymon.link.page import PageError, PageReader
from pymon.link.wire import Hello
from tests.daemon.pages import memfd_page
from tests.link.page_peer import entry


def page_bytes():
    fd = memfd_page()
    os.pwrite(fd, entry(3), layout.RING_OFFSET + 3 * layout.RING_ENTRY_BYTES)
    reader = PageReader.open(fd)
    os.close(fd)
    return reader.copy()


def kept(page):
    return KeptPage(Hello("ab" * 16, 7, rank=1), 7, 1000, "exited", ("a", "b"), 10, 20, page)


def test_what_was_kept_is_what_is_read():
    original = kept(page_bytes())
    assert unpack(pack(original)) == original


@pytest.mark.parametrize("backend", ["native", "python"])
def test_the_kept_page_is_read_as_a_living_one(backend):
    reader = PageReader.of_bytes(page_bytes(), backend)
    assert [step.step for step in reader.steps_after(0)[0]] == [3]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no gzip",
        gzip.compress(b"no json\n"),
        gzip.compress(b"{}\n"),
        gzip.compress(b"[" * 100_000),
        gzip.compress(json.dumps({"hello": {"attach_id": 1, "pid": 2}}).encode() + b"\n"),
    ],
)
def test_what_is_no_box_is_refused(data):
    with pytest.raises(PageError, match="no black box"):
        unpack(data)


def test_a_box_that_was_cut_or_blown_up_is_refused(monkeypatch):
    data = pack(kept(page_bytes()))
    with pytest.raises(PageError):
        unpack(data[:-20])
    monkeypatch.setattr(kept_page.layout, "MAX_PAGE_BYTES", 1000)
    with pytest.raises(PageError):
        unpack(data)


def test_a_page_of_nonsense_in_a_sound_file_is_refused_by_the_reader():
    with pytest.raises(PageError):
        unpack(pack(kept(b"x" * 8192))).reader()

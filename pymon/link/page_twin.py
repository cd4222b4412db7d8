"""The Python twin of csrc/core/page_reader.cpp: same bytes, same refusals, same words.

For tests, and for x86 machines without a compiler: x86 keeps the order of loads, which other processors do not, and
Python has no way to ask for it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import struct

from pymon.link import layout

_ATTEMPTS = 64  # a copy takes the writer under a microsecond, one attempt here several
_WORD = struct.Struct("@Q")  # native: copied as one word, where "<Q" goes byte by byte
_ORDERED_MACHINES = ("x86_64", "AMD64", "i686", "i386")


class PageTwin:
    """One mapped page. Raises ValueError for what is no page, OSError where the system refuses."""

    def __init__(self, fd: int) -> None:
        if platform.machine() not in _ORDERED_MACHINES:
            raise ValueError("pages are read by pymon.native._tools on this processor")
        size = _sealed_size(fd)
        self._page = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        self._header = self._page[: layout.HEADER_BYTES]
        if fault := _fault_in(self._header, size):
            self._page.close()
            raise ValueError(fault)
        fields = layout.HEADER.unpack_from(self._header)
        self._train_at: int = fields[9]
        self._ring_at: int = fields[15]
        self._entry_bytes: int = fields[16]
        self._entries: int = fields[17]

    def header(self) -> bytes:
        """As it was when the page was opened."""
        return self._header

    def train(self) -> bytes | None:
        """The body, copied while its seqlock stood still; None where it never did."""
        at = self._train_at + layout.TRAIN_BODY_IN_SECTION
        for _ in range(_ATTEMPTS):
            before = self._word(self._train_at)
            if before & 1:
                continue
            body = self._page[at : at + layout.TRAIN_BODY_BYTES]
            if self._word(self._train_at) == before:
                return body
        return None

    def steps_after(self, step: int) -> tuple[bytes, int]:
        """Entries of the steps after `step` in one string, oldest first, and how many are gone."""
        newest = self._newest_step()
        if newest <= step:
            return b"", 0
        found = []
        for wanted in range(newest - min(newest - step, self._entries) + 1, newest + 1):
            at = self._entry_at(wanted)
            entry = self._page[at : at + layout.RING_ENTRY_BYTES]
            if _WORD.unpack_from(entry)[0] == wanted and self._word(at) == wanted:
                found.append(entry)
        return b"".join(found), newest - step - len(found)

    def _newest_step(self) -> int:
        newest = 0
        for slot in range(self._entries):
            step = self._word(self._entry_at(slot))
            if step > newest and step % self._entries == slot:
                newest = step
        return newest

    def _entry_at(self, step: int) -> int:
        return self._ring_at + step % self._entries * self._entry_bytes

    def _word(self, at: int) -> int:
        word: int = _WORD.unpack_from(self._page, at)[0]
        return word


def _sealed_size(fd: int) -> int:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as err:
        raise ValueError(f"not a memfd: {err.strerror}") from None
    needed = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    if seals & needed != needed:
        raise ValueError("memfd is not sealed against shrinking and growing")
    size = os.fstat(fd).st_size
    if not layout.HEADER_BYTES <= size <= layout.MAX_PAGE_BYTES:
        raise ValueError(f"no size for a page: {size} bytes")
    return size


def _fault_in(raw: bytes, size: int) -> str:
    """Empty where the header is one we can read; else what is wrong with it."""
    magic, major, _, page_bytes, *_, ring_at, entry_bytes, entries = layout.HEADER.unpack_from(raw)
    train_at, train_bytes = layout.HEADER.unpack_from(raw)[9:11]
    if magic != layout.MAGIC:
        return "no page of pymon, or not ready yet"
    if major != layout.MAJOR:
        return f"page layout {major}, this pymon reads {layout.MAJOR}"
    if page_bytes != size:
        return "its header names another size"
    if train_bytes < layout.TRAIN_SECTION_BYTES or not _inside(train_at, train_bytes, size):
        return "its training section lies outside of it"
    sound_entries = entry_bytes >= layout.RING_ENTRY_BYTES and entry_bytes % 8 == 0 and entries > 0
    if not sound_entries or not _inside(ring_at, entries * entry_bytes, size):
        return "its ring lies outside of it"
    return ""


def _inside(at: int, length: int, size: int) -> bool:
    return at % 8 == 0 and layout.HEADER_BYTES <= at <= size and length <= size - at

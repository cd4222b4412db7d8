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
        self._gpu_at: int = fields[11]
        self._cupti_at: int = fields[13]
        self._ring_at: int = fields[15]
        self._entry_bytes: int = fields[16]
        self._entries: int = fields[17]
        self._gpu_ring_at: int = fields[18]
        self._gpu_entry_bytes: int = fields[19]
        self._gpu_entries: int = fields[20]
        self._run_at: int = fields[21]
        self._events_at: int = fields[23]
        self._collectives_at: int = fields[25]
        self._memory_at: int = fields[27]
        self._recorder_at: int = fields[29]

    def header(self) -> bytes:
        """As it was when the page was opened."""
        return self._header

    def copy(self) -> bytes:
        """All bytes as they stand."""
        return self._page[:]

    def train(self) -> bytes | None:
        """The body, copied while its seqlock stood still; None where it never did."""
        return self._section(self._train_at, layout.TRAIN_BODY_BYTES)

    def gpu(self) -> bytes | None:
        """Likewise; None also where the page, of an older writer, has none."""
        return self._section(self._gpu_at, layout.GPU_BODY_BYTES) if self._gpu_at else None

    def cupti(self) -> bytes | None:
        """Likewise."""
        return self._section(self._cupti_at, layout.CUPTI_BODY_BYTES) if self._cupti_at else None

    def run(self) -> bytes | None:
        """Likewise."""
        return self._section(self._run_at, layout.RUN_BODY_BYTES) if self._run_at else None

    def _section(self, section_at: int, size: int) -> bytes | None:
        at = section_at + layout.TRAIN_BODY_IN_SECTION
        for _ in range(_ATTEMPTS):
            before = self._word(section_at)
            if before & 1:
                continue
            body = self._page[at : at + size]
            if self._word(section_at) == before:
                return body
        return None

    def gpu_steps_after(self, step: int) -> bytes:
        """GPU times of the steps after `step` in one string, oldest first; any may be missing."""
        entries = self._gpu_entries if self._gpu_ring_at else 0
        size = layout.GPU_RING_ENTRY_BYTES
        return self._entries_after(step, self._gpu_ring_at, self._gpu_entry_bytes, entries, size)

    def events(self) -> bytes | None:
        """As `gpu`."""
        return self._section(self._events_at, layout.EVENTS_BODY_BYTES) if self._events_at else None

    def collectives(self) -> bytes | None:
        """As `gpu`."""
        at, size = self._collectives_at, layout.COLLECTIVES_BODY_BYTES
        return self._section(at, size) if at else None

    def memory(self) -> bytes | None:
        """As `gpu`."""
        return self._section(self._memory_at, layout.MEMORY_BODY_BYTES) if self._memory_at else None

    def recorder(self) -> bytes | None:
        """As `gpu`."""
        at, size = self._recorder_at, layout.RECORDER_BODY_BYTES
        return self._section(at, size) if at else None

    def events_after(self, number: int) -> bytes:
        """Events after this number in one string, oldest first; any may be missing."""
        entries = layout.EVENT_RING_ENTRIES if self._events_at else 0
        size = layout.EVENT_ENTRY_BYTES
        return self._entries_after(
            number, self._events_at + layout.EVENT_RING_BYTE, size, entries, size
        )

    def _entries_after(
        self, after: int, ring_at: int, stride: int, entries: int, size: int
    ) -> bytes:
        found = []
        for slot in range(entries):
            at = ring_at + slot * stride
            wanted = self._word(at)
            if wanted <= after or wanted % entries != slot:
                continue
            entry = self._page[at : at + size]
            if _WORD.unpack_from(entry)[0] == wanted and self._word(at) == wanted:
                found.append((wanted, entry))
        return b"".join(entry for _, entry in sorted(found))

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
    fields = layout.HEADER.unpack_from(raw)
    magic, major, _, page_bytes = fields[:4]
    train_at, train_bytes, gpu_at, gpu_bytes, cupti_at, cupti_bytes = fields[9:15]
    ring_at, entry_bytes, entries, gpu_ring_at, gpu_entry_bytes, gpu_entries = fields[15:21]
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
    in_section = layout.TRAIN_BODY_IN_SECTION
    for at, length, least in (
        (gpu_at, gpu_bytes, in_section + layout.GPU_BODY_BYTES),
        (cupti_at, cupti_bytes, in_section + layout.CUPTI_BODY_BYTES),
    ):
        if at and (length < least or not _inside(at, length, size)):
            return "its GPU sections lie outside of it"
    for field, least, name in (
        (23, layout.EVENTS_BYTES, "section of events"),
        (21, in_section + layout.RUN_BODY_BYTES, "run section"),
        (25, in_section + layout.COLLECTIVES_BODY_BYTES, "section of collectives"),
        (27, in_section + layout.MEMORY_BODY_BYTES, "section of memory"),
        (29, in_section + layout.RECORDER_BODY_BYTES, "section of the flight recorder"),
    ):
        at, length = fields[field : field + 2]
        if at and (length < least or not _inside(at, length, size)):
            return f"its {name} lies outside of it"
    sound_entries = gpu_entry_bytes >= layout.GPU_RING_ENTRY_BYTES and gpu_entry_bytes % 8 == 0
    sound_entries = sound_entries and gpu_entries > 0
    if gpu_ring_at and not (
        sound_entries and _inside(gpu_ring_at, gpu_entries * gpu_entry_bytes, size)
    ):
        return "its GPU ring lies outside of it"
    return ""


def _inside(at: int, length: int, size: int) -> bool:
    return at % 8 == 0 and layout.HEADER_BYTES <= at <= size and length <= size - at

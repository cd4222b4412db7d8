"""A page with the real writer behind it (tests/native/page_peer.cpp), and pages made by hand."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path

from pymon.link import layout

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class PagePeer:
    """A process that owns a page and writes it on command; `fd` is our own way to the same memfd."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        number = int(self._answer())
        self.pid = self._process.pid
        self.fd = os.open(f"/proc/{self.pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)

    def say(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._answer() == "done"

    def _answer(self) -> str:
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        self.kill()
        os.close(self.fd)


def memfd(size: int = layout.PAGE_BYTES, seals: int = SEALS, content: bytes = b"") -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    os.pwrite(fd, content, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def header(**changes: int | bytes) -> bytes:
    """A sound header, with some fields changed."""
    fields = {
        "magic": layout.MAGIC,
        "major": layout.MAJOR,
        "minor": layout.MINOR,
        "page_bytes": layout.PAGE_BYTES,
        "pid": 1,
        "start_ticks": 2,
        "created_mono_ns": 3,
        "created_real_ns": 4,
        "attach_id": bytes(range(16)),
        "train_offset": layout.TRAIN_OFFSET,
        "train_bytes": layout.TRAIN_SECTION_BYTES,
        "gpu_offset": 0,
        "gpu_bytes": 0,
        "cupti_offset": 0,
        "cupti_bytes": 0,
        "ring_offset": layout.RING_OFFSET,
        "ring_entry_bytes": layout.RING_ENTRY_BYTES,
        "ring_entries": layout.RING_ENTRIES,
        "gpu_ring_offset": 0,
        "gpu_ring_entry_bytes": 0,
        "gpu_ring_entries": 0,
        "run_offset": 0,
        "run_bytes": 0,
        "events_offset": 0,
        "events_bytes": 0,
        "collectives_offset": 0,
        "collectives_bytes": 0,
        "memory_offset": 0,
        "memory_bytes": 0,
        "recorder_offset": 0,
        "recorder_bytes": 0,
    }
    return layout.HEADER.pack(*(fields | changes).values())


def entry(step: int, entry_bytes: int = layout.RING_ENTRY_BYTES) -> bytes:
    return struct.pack("<4Q", step, 10 * step, step, 0).ljust(entry_bytes, b"\0")

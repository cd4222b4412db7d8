"""A capture on disk: one folder, built under a temporary name, its manifest written last, then renamed."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import stat
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from pymon.model.capture import CaptureFile, CaptureReceipt, CaptureRequest

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
KINDS = (
    "trace",
    "call_sites",
    "counters",
)  # of files that trainers write; their names end in `.<kind>.json`
_TEMPORARY = ".tmp-"
_CHUNK_BYTES = 1024 * 1024
_DURATION_EVENT = re.compile(rb'"ph":\s*"X"')


class Bundle:
    """The folder of one capture below `captures_dir`. Raises OSError from every step."""

    def __init__(self, captures_dir: Path, capture_id: str) -> None:
        self.final = captures_dir / capture_id
        self._folder = captures_dir / f"{_TEMPORARY}{capture_id}"
        self._folder.mkdir(mode=0o750)

    def take(self, folder: Path, source: str, name: str, uid: int, limit_bytes: int) -> CaptureFile:
        """Copies a file that a trainer wrote, compressed where `name` ends in .gz.

        The trainer may be hostile: only a regular file of its own user, at that very place, up to a size, is taken.
        Raises OSError, PermissionError and ValueError among it.
        """
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(source, flags, dir_fd=folder_fd)
        finally:
            os.close(folder_fd)
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != uid:
                raise PermissionError(f"{source} is no file of the trainer's own")
            if info.st_size > limit_bytes:
                raise ValueError(f"{source} has {info.st_size} bytes, {limit_bytes} at most")
            target = self._folder / name
            try:
                _copy(file, target, limit_bytes)
            except BaseException:
                target.unlink(missing_ok=True)  # half a file is none
                raise
        kind = next((kind for kind in KINDS if f".{kind}." in name), "")
        return CaptureFile(name, target.stat().st_size, kind)

    def has_events(self, name: str) -> bool:
        """Whether a trace that was taken holds at least one event with a duration; Kineto may write one without any."""
        with gzip.open(self._folder / name, "rb") as file:
            tail = b""
            while chunk := file.read(_CHUNK_BYTES):
                if _DURATION_EVENT.search(tail + chunk):
                    return True
                tail = chunk[-16:]
        return False

    def remove(self, name: str) -> None:
        """Takes back a file that turned out to be worth nothing."""
        (self._folder / name).unlink(missing_ok=True)

    def finish(self, request: CaptureRequest, receipts: Sequence[CaptureReceipt]) -> Path:
        """Writes the manifest and gives the folder its name."""
        document = {
            "version": MANIFEST_VERSION,
            "request": {**asdict(request), "kind": request.kind.value},
            "receipts": [_plain(receipt) for receipt in receipts],
        }
        (self._folder / MANIFEST).write_text(
            json.dumps(document, indent=1) + "\n", encoding="utf-8"
        )
        self._folder.rename(self.final)
        return self.final

    def discard(self) -> None:
        """Nothing was worth keeping."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _copy(source: BinaryIO, target: Path, limit_bytes: int) -> None:
    """Level 1: a trace shrinks tenfold at it, and the daemon shares the node with the training."""
    with gzip.open(target, "xb", 1) if target.suffix == ".gz" else open(target, "xb") as out:
        left = limit_bytes
        while left > 0 and (chunk := source.read(min(_CHUNK_BYTES, left))):
            out.write(chunk)
            left -= len(chunk)


def _plain(receipt: CaptureReceipt) -> dict[str, object]:
    return {**asdict(receipt), "kind": receipt.kind.value, "status": receipt.status.value}


def clear_temporary(captures_dir: Path) -> None:
    """What a daemon that was killed left half made."""
    for folder in captures_dir.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(folder, ignore_errors=True)


def keep_within(captures_dir: Path, quota_bytes: int) -> None:
    """Removes the oldest captures until the rest fits; the newest always stays."""
    kept: list[tuple[float, int, Path]] = []
    for folder in captures_dir.iterdir():
        with contextlib.suppress(OSError):  # somebody else tidies up, too
            if (folder / MANIFEST).is_file():
                size_bytes = sum(f.stat().st_size for f in folder.iterdir() if f.is_file())
                kept.append((folder.stat().st_mtime, size_bytes, folder))
    used_bytes = 0
    for place, (_, size_bytes, folder) in enumerate(sorted(kept, reverse=True)):
        used_bytes += size_bytes
        if used_bytes > quota_bytes and place > 0:
            shutil.rmtree(folder, ignore_errors=True)

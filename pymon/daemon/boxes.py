"""The black boxes: pages of processes that have ended, kept in the state folder within bounds."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymon.base.clock import Clock
from pymon.daemon.agent import Attachment
from pymon.daemon.cases import write_whole
from pymon.daemon.kernel_words import KernelWords
from pymon.daemon.peers import Peer
from pymon.link import wire
from pymon.link.kept_page import SUFFIX, KeptPage, pack
from pymon.link.page import PageError

log = logging.getLogger(__name__)
PAGE_MAX_BYTES = 2 << 20  # twice today's: what somebody's page may take of our memory
WAITING_MAX = 128  # pages of about 900 KB that wait for the disk: ranks of a node that end at once
_LISTED_MAX = 128
_PART = 32 * 1024  # of a message of 64 KiB, which JSON does not lengthen here
ORDINARY = "exited"  # ends that nobody asks about go first


@dataclass(frozen=True, slots=True)
class BoxFile:
    """One of the folder. The name tells all: `<UTC time>-<pid>-<uid>-<attach id>[-exited].blackbox`."""

    path: Path
    pid: int
    uid: int
    ordinary: bool
    size_bytes: int

    @classmethod
    def of(cls, path: Path) -> BoxFile | None:
        """None for a name that is none of ours, and for a file that is gone."""
        parts = path.name.removesuffix(SUFFIX).split("-")
        try:
            ordinary = parts[5:] == [ORDINARY]
            return cls(path, int(parts[2]), int(parts[3]), ordinary, path.stat().st_size)
        except (IndexError, ValueError, OSError):
            return None

    def row(self) -> dict[str, Any]:
        """For a list."""
        return {"pid": self.pid, "uid": self.uid, "file": str(self.path), "bytes": self.size_bytes}


@dataclass(slots=True)
class Boxes:
    """`folder` exists and is ours. Writing is a thread's; what the disk does not take is counted and told once."""

    folder: Path
    clock: Clock
    keep_max: int = 128
    max_bytes: int = 64 * 1024 * 1024
    kernel: KernelWords = field(default_factory=KernelWords)
    lost_total: int = 0
    _waiting: queue.Queue[tuple[KeptPage, int | None] | None] = field(
        default_factory=lambda: queue.Queue(WAITING_MAX)
    )
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to write, and to read the kernel's log."""
        self._thread = threading.Thread(target=self._work, name="pymon-blackbox", daemon=True)
        self._thread.start()

    def keep(self, attachment: Attachment) -> None:
        """On the loop: the page as the process left it, a copy of about 0.2 ms."""
        try:
            page = attachment.page.copy()
            if len(page) > PAGE_MAX_BYTES:
                raise PageError(f"a page of {len(page)} bytes")
            kept = KeptPage(
                hello=attachment.hello,
                pid=attachment.pid,
                uid=attachment.uid,
                ended=attachment.ended or "",
                evidence=attachment.evidence,
                ended_mono_ns=self.clock.monotonic_ns(),
                ended_real_ns=self.clock.real_ns(),
                page=page,
            )
            self._waiting.put_nowait((kept, attachment.host_pid))
        except (PageError, MemoryError, queue.Full) as err:
            self._lost(f"{type(err).__name__}: {err}")

    def files(self) -> list[BoxFile]:
        """Newest last."""
        with contextlib.suppress(OSError):
            found = map(BoxFile.of, sorted(self.folder.glob(f"*{SUFFIX}")))
            return [box for box in found if box is not None]
        return []

    def close(self, timeout_s: float) -> None:
        """Writes what waits."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=timeout_s)
            self._thread.join(timeout_s)

    def _work(self) -> None:
        self.kernel.read()  # from here on
        while (waiting := self._waiting.get()) is not None:
            try:
                self._write(*waiting)
            except Exception as err:  # noqa: BLE001 - a full disk, or a bug: costs this box
                self._lost(f"{type(err).__name__}: {err}")

    def _write(self, kept: KeptPage, host_pid: int | None) -> None:
        evidence = kept.evidence
        if kept.ended != ORDINARY:
            evidence += self.kernel.about(host_pid, kept.hello.attached_real_ns)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(kept.ended_real_ns / 1e9))
        ordinary = f"-{ORDINARY}" if kept.ended == ORDINARY else ""
        name = f"{stamp}-{kept.pid}-{kept.uid}-{kept.hello.attach_id}{ordinary}{SUFFIX}"
        fields = {name: getattr(kept, name) for name in KeptPage.__slots__}
        data = pack(KeptPage(**(fields | {"evidence": evidence})))
        if len(data) > self.max_bytes:
            self._lost(f"{name}: {len(data)} bytes are more than all may have")
            return
        write_whole(self.folder / name, data)
        for box in beyond(self.files(), self.keep_max, self.max_bytes):
            with contextlib.suppress(OSError):
                os.unlink(box.path)

    def _lost(self, why: str) -> None:
        self.lost_total += 1
        if self.lost_total == 1:
            log.warning("a black box could not be kept (%s); more of it is only counted", why)


async def box_replies(
    boxes: Boxes | None, peer: Peer, pids: Sequence[int]
) -> AsyncIterator[wire.Reply]:
    """The newest box of that process in parts of base64 text; without a pid the list. Only what the peer may touch."""
    files = await asyncio.to_thread(boxes.files) if boxes is not None else []
    mine = [box for box in files if peer.may_touch(box.uid)]
    if not pids:
        rows = [box.row() for box in reversed(mine[-_LISTED_MAX:])]
        yield wire.Reply(last=True, body={"boxes": rows})
        return
    box = next((box for box in reversed(mine) if box.pid == pids[0]), None)
    if box is None:
        yield wire.Reply(False, True, f"no black box of process {pids[0]} is kept here")
        return
    data = base64.b64encode(await asyncio.to_thread(box.path.read_bytes)).decode()
    for at in range(0, len(data), _PART):
        yield wire.Reply(text=data[at : at + _PART])
    yield wire.Reply(last=True, body=box.row())


def beyond(files: Iterable[BoxFile], keep_max: int, max_bytes: int) -> list[BoxFile]:
    """Which to remove: ordinary ends first, then the oldest of the user who has the most. `files` is oldest first."""
    left, removed = list(files), []
    while left and (len(left) > keep_max or sum(box.size_bytes for box in left) > max_bytes):
        owners = Counter(box.uid for box in left)
        most = max(owners, key=lambda uid: owners[uid])
        theirs = [box for box in left if box.uid == most]
        first = next((box for box in theirs if box.ordinary), theirs[0])
        left.remove(first)
        removed.append(first)
    return removed

"""A page that outlived its process, as a file: one line of JSON about it, then the page, gzipped."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import zlib
from dataclasses import dataclass

from pymon.link import layout, wire
from pymon.link.page import PageError, PageReader

SUFFIX = ".blackbox"
VERSION = 1
MAX_FILE_BYTES = layout.MAX_PAGE_BYTES  # of what is read from a file that anyone may have made
_MAX_LINE_BYTES = 64 * 1024
_LEVEL = 1  # 900 KB take 8 ms, level 6 takes 40 for a tenth less


@dataclass(frozen=True, slots=True)
class KeptPage:
    """Who wrote the page, how the writer ended, and the page's bytes."""

    hello: wire.Hello
    pid: int
    uid: int
    ended: str
    evidence: tuple[str, ...]
    ended_mono_ns: int  # CLOCK_MONOTONIC and CLOCK_REALTIME at which the end was seen
    ended_real_ns: int
    page: bytes

    def reader(self) -> PageReader:
        """The page. Raises PageError."""
        return PageReader.of_bytes(self.page)


def pack(kept: KeptPage) -> bytes:
    """The file's bytes."""
    head = {f.name: getattr(kept, f.name) for f in dataclasses.fields(kept) if f.name != "page"}
    head |= {"version": VERSION, "hello": dataclasses.asdict(kept.hello)}
    line = json.dumps(head).encode() + b"\n"
    return gzip.compress(line + kept.page, _LEVEL)


def unpack(data: bytes) -> KeptPage:
    """Of such a file; raises PageError on anything else."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            head = json.loads(file.readline(_MAX_LINE_BYTES))
            page = file.read(layout.MAX_PAGE_BYTES + 1)
        hello = wire.decode(json.dumps({**head["hello"], "type": "hello"}).encode())
        if not isinstance(hello, wire.Hello) or len(page) > layout.MAX_PAGE_BYTES:
            raise ValueError("no page")
        return KeptPage(
            hello=hello,
            pid=int(head["pid"]),
            uid=int(head["uid"]),
            ended=str(head["ended"]),
            evidence=tuple(str(line)[: wire.MAX_TEXT] for line in head["evidence"]),
            ended_mono_ns=int(head["ended_mono_ns"]),
            ended_real_ns=int(head["ended_real_ns"]),
            page=page,
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as err:
        raise PageError(f"no black box of pymon: {err}") from None

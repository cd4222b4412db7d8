"""Files -> the native reader: finding traces, unpacking, reading call sites beside them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pymon.base.errors import InputError, PymonError
from pymon.model.diagnosis import CodeSite
from pymon.model.trace import CallSites
from pymon.native import tools

CHUNK_BYTES: Final = 1 << 20
MAX_CALL_SITES_BYTES: Final = 16 << 20  # the probe's table is bounded far below this
GZIP_MAGIC: Final = b"\x1f\x8b"
TRACE_ENDINGS: Final = (".trace.json", ".trace.json.gz")
Progress = Callable[[int], None]  # bytes of the file read so far


def printable(text: str) -> str:
    """Without control characters: names come from a file and go to a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def find_traces(path: Path) -> tuple[Path, ...]:
    """The file itself, or a capture folder's traces; raises InputError where there is none."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if not path.is_dir():
        return (path,)
    files = sorted(p for p in path.iterdir() if p.name.endswith(TRACE_ENDINGS))
    if not files:
        raise InputError(f"{path}: no trace in this folder (*.trace.json or *.trace.json.gz)")
    return tuple(files)


def read_trace(
    path: Path, given_steps: int = 0, progress: Progress | None = None
) -> tuple[dict[str, Any], str]:
    """The native facts of a file, and what was wrong with the file itself (empty: nothing).

    Raises InputError where it cannot be read at all, PymonError without the native module.
    """
    native, why_not = tools()
    if native is None or not hasattr(native, "TraceReader"):
        raise PymonError(f"traces cannot be read: {why_not or 'the native module is too old'}")
    reader = native.TraceReader()
    wrong = ""
    try:
        for chunk in _chunks(path, progress):
            reader.feed(chunk)
    except OSError as err:
        raise InputError(f"{path}: cannot be read ({err.strerror or err})") from err
    except (zlib.error, EOFError) as err:
        wrong = str(err)
    reader.finish()
    facts: dict[str, Any] = reader.facts(given_steps=given_steps)
    return facts, wrong


def _chunks(path: Path, progress: Progress | None) -> Iterator[bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        unpacker = zlib.decompressobj(wbits=31) if packed else None
        while chunk := file.read(CHUNK_BYTES):
            if progress is not None:
                progress(file.tell())
            if unpacker is None:
                yield chunk
                continue
            while (
                chunk
            ):  # bounded pieces, however far a file unpacks; members may follow each other
                yield unpacker.decompress(chunk, CHUNK_BYTES)
                chunk = unpacker.unconsumed_tail
                if unpacker.eof and (rest := (unpacker.unused_data or chunk)):
                    if not rest.startswith(GZIP_MAGIC):
                        return  # padding after the last member
                    unpacker, chunk = zlib.decompressobj(wbits=31), rest
        if unpacker is not None and not unpacker.eof:
            yield unpacker.flush()
            raise EOFError("the gzip file is cut short")


def call_sites_beside(path: Path) -> tuple[CallSites | None, str]:
    """`X.call_sites.json` beside `X.trace.json[.gz]` (or `call_sites.json` beside `trace.json`),
    and what was wrong.
    """
    stem = path.name.removesuffix(".gz").removesuffix(".json").removesuffix("trace")
    beside = path.with_name(f"{stem}call_sites.json")
    if beside == path or not beside.is_file():
        return None, ""
    try:
        if beside.stat().st_size > MAX_CALL_SITES_BYTES:
            return None, f"{beside.name}: too large, not read"
        return _call_sites(json.loads(beside.read_bytes())), ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        return None, f"{beside.name}: cannot be read ({err})"


def _call_sites(raw: Any) -> CallSites:
    sites = tuple(
        CodeSite(
            file=printable(str(site["file"])),
            line=int(site["line"]),
            function=printable(str(site["function"])),
            call=printable(str(site["call"])),
            calls=int(site["calls"]),
            total_s=int(site["total_ns"]) / 1e9,
            exact_line=True,
        )
        for site in raw["sites"]
    )
    ranked = tuple(sorted(sites, key=lambda site: -site.total_s))
    return CallSites(steps=int(raw["steps"]), window_s=float(raw["window_s"]), sites=ranked)

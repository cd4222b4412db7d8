"""`pymon blackbox`: the last steps of a process that ended, and how it ended."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pymon.base.errors import InputError, PymonError
from pymon.cli import agent as agent_client
from pymon.cli.private_daemon import state_folder
from pymon.collectors.black_box import black_box
from pymon.daemon.boxes import BoxFile
from pymon.daemon.config import DEFAULT_STATE_DIR
from pymon.link import wire
from pymon.link.kept_page import MAX_FILE_BYTES, SUFFIX, unpack
from pymon.link.page import PageError
from pymon.model.blackbox import BlackBox

_EPILOG = """
\b
Examples:
  pymon blackbox --list
  pymon blackbox 4711
  pymon blackbox 4711 --trace last-minutes.json     (open it in ui.perfetto.dev)
"""


@click.command("blackbox", epilog=_EPILOG)
@click.argument("which", metavar="PID|FILE", required=False)
@click.option("--list", "as_list", is_flag=True, help="The black boxes that are kept.")
@click.option("--steps", type=click.IntRange(1, 4096), default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Everything in it as one JSON object.")
@click.option(
    "--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write a trace for Perfetto."
)
@click.option(
    "--socket", type=click.Path(path_type=Path), help="The daemon's socket, if not the usual one."
)
def command(
    which: str | None,
    as_list: bool,
    steps: int,
    as_json: bool,
    trace: Path | None,
    socket: Path | None,
) -> None:
    """Show the last steps of a process that ended, and how it ended.

    Asks the daemon, and looks into the folders of past `pymon run`s.
    """
    if as_list == bool(which):
        raise click.UsageError("give a PID or a FILE, or --list")
    if which is None:
        _list(list(_rows(socket)), as_json)
        return
    box = _box(which, socket)
    if trace is not None:
        from pymon.reports import box_trace

        _write(trace, box_trace.render(box))
        click.echo(f"{trace}: open it in ui.perfetto.dev", err=True)
    if as_json:
        from pymon.reports.json import VERSION, plain

        click.echo(json.dumps({"version": VERSION, **plain(box)}, indent=2, ensure_ascii=False))
    elif trace is None:
        from rich.console import Console

        from pymon.reports import box_terminal

        Console(highlight=False, soft_wrap=True).print(box_terminal.render(box, steps))


def _box(which: str, socket: Path | None) -> BlackBox:
    path = Path(which)
    try:
        if path.is_file():
            with path.open("rb") as file:
                return black_box(unpack(file.read(MAX_FILE_BYTES)))
        if not which.isdecimal():
            raise InputError(f"{which}: no such file, and no pid")
        return black_box(unpack(_bytes_of(int(which), socket)))
    except OSError as err:
        raise InputError(f"{which}: {err.strerror}") from None
    except PageError as err:
        raise InputError(f"{which}: {err}") from None


def _bytes_of(pid: int, socket: Path | None) -> bytes:
    parts: list[str] = []
    try:
        path = socket or agent_client.find()
        agent_client.ask(path, wire.Request("blackbox", [pid], timeout_s=20.0), parts.append)
        return base64.b64decode("".join(parts))
    except PymonError as err:
        newest = [box for box in _local() if box.pid == pid][-1:]
        if not newest or socket is not None:
            raise PymonError(f"{err}; `pymon blackbox --list` shows what there is") from None
        return newest[0].path.read_bytes()


def _rows(socket: Path | None) -> Iterator[dict[str, Any]]:
    seen = set()
    try:
        path = socket or agent_client.find()
        body = agent_client.ask(path, wire.Request("blackbox", timeout_s=10.0)).body
        for row in body.get("boxes", []):
            seen.add(row["file"])
            yield row
    except agent_client.NoDaemon:
        if socket is not None:
            raise
    if socket is None:
        yield from (box.row() for box in reversed(_local()) if str(box.path) not in seen)


def _local() -> list[BoxFile]:
    """Those in the usual state folders that we may read, and in those of past runs; newest last."""
    folders = [DEFAULT_STATE_DIR, state_folder()]
    try:
        folders += [path for path in state_folder().iterdir() if path.is_dir()]
        found = [path for folder in folders for path in (folder / "blackbox").glob(f"*{SUFFIX}")]
    except OSError:
        found = []
    return [box for path in sorted(found, key=lambda p: p.name) if (box := BoxFile.of(path))]


def _list(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo("no black box is kept yet: one is made when a watched process ends")
    for row in rows:
        when = Path(row["file"]).name[:15]
        click.echo(f"{when} UTC  pid {row['pid']:<8} {row['file']}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as err:
        raise InputError(f"{path}: {err.strerror}") from None

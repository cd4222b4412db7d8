"""`pymon status`: what the daemon sees now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from pymon.cli import agent as agent_client
from pymon.link import wire


@click.command("status")
@click.option(
    "--socket", type=click.Path(path_type=Path), help="The daemon's socket, if not the usual one."
)
@click.option("--json", "as_json", is_flag=True, help="The daemon's answer as JSON.")
def command(socket: Path | None, as_json: bool) -> None:
    """Show what the daemon sees: processes, incidents, captures, and what is absent."""
    path = socket or agent_client.find()
    body = agent_client.ask(path, wire.Request("status", timeout_s=10.0)).body
    if as_json:
        click.echo(json.dumps(body, indent=2))
        return
    console = Console(highlight=False)
    http = body.get("http") or "off"
    console.print(f"pymon {body.get('version')}, pid {body.get('pid')}, {path}, http {http}")
    for title, key in (
        ("training processes", "processes"),
        ("GPUs", "gpus"),
        ("jobs", "jobs"),
        ("disarmed", "disarmed"),
        ("incidents", "incidents"),
        ("captures", "captures"),
        ("collectors", "collectors"),
        ("readings that are absent", "absent"),
    ):
        _table(console, title, body.get(key) or [])


def _table(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """A column for each field the daemon knows, so that a newer one may tell more."""
    if not rows:
        console.print(f"{title}: none")
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    console.print(table)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""`pymon arm`: takes a `pymon disarm` back."""

from __future__ import annotations

from pathlib import Path

import click

from pymon.cli import disarm


@click.command("arm")
@click.option("--job", default="", help="Only the disarm of this job.")
@click.option(
    "--socket", type=click.Path(path_type=Path), help="The daemon's socket, if not the usual one."
)
def command(job: str, socket: Path | None) -> int:
    """Take a `pymon disarm` back: probes count and time again.

    Without --job all that you may take back. The GPU layers of a process that was disarmed while
    they ran stay off until it is started anew.
    """
    return disarm.ask("arm", job, socket)

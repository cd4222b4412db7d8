"""`pymon release`: lets go of the NVIDIA driver, so that it can be replaced."""

from __future__ import annotations

from pathlib import Path

import click

from pymon.cli import agent as agent_client
from pymon.link import wire

_EPILOG = """
\b
Examples:
  pymon release && systemctl restart nvidia-persistenced
  pymon release --for-s 3600
  pymon release --for-s 0        take it again now
"""


@click.command("release", epilog=_EPILOG)
@click.option(
    "--socket", type=click.Path(path_type=Path), help="The daemon's socket, if not the usual one."
)
@click.option(
    "--for-s",
    type=click.FloatRange(0, 7 * 24 * 3600),
    default=600.0,
    show_default=True,
    help="The daemon takes the driver again after so many seconds.",
)
def command(socket: Path | None, for_s: float) -> None:
    """Let go of the NVIDIA driver for a while, for its upgrade or unload.

    Returns once no process of the daemon holds a file of the driver. Everything else is watched on.
    """
    path = socket or agent_client.find()
    request = wire.Request("release", for_s=for_s, timeout_s=20.0)
    click.echo(agent_client.ask(path, request).text)

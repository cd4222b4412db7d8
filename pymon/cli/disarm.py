"""`pymon disarm`: quiets the probes of running trainings."""

from __future__ import annotations

from pathlib import Path

import click

from pymon.cli import agent as agent_client
from pymon.link import wire

_EPILOG = """
\b
Examples:
  pymon disarm --job 4711
  pymon disarm              all of yours; as root those of everybody
  pymon arm                 take it back
"""


@click.command("disarm", epilog=_EPILOG)
@click.option("--job", default="", help="Only this job's processes.")
@click.option(
    "--socket", type=click.Path(path_type=Path), help="The daemon's socket, if not the usual one."
)
def command(job: str, socket: Path | None) -> int:
    """Quiet the probes of running trainings, and of those that begin later, until `pymon arm`.

    Their hooks count and time nothing any more. It stays in force when the daemon is started anew.
    Exits with 1 where a probe did not obey within five seconds.
    """
    return ask("disarm", job, socket)


def ask(what: str, job: str, socket: Path | None) -> int:
    """For `pymon arm` too."""
    path = socket or agent_client.find()
    reply = agent_client.ask(path, wire.Request(what, job=job, timeout_s=20.0))
    click.echo(reply.text)
    return 1 if reply.body.get("left") else 0

"""`pymon capture`: one bounded capture now, with its diagnosis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from pymon.capture.counters import LONGEST_S
from pymon.cli import agent as agent_client
from pymon.link import wire
from pymon.model.counters import CounterBurst
from pymon.reports.counters import lines

TIMEOUT_S = 720.0  # the longest order (ten minutes, for steps of half a minute) and its answer
_EPILOG = """
\b
Examples:
  pymon capture --pid 4711
  pymon capture --all --steps 5
  pymon capture --pid 4711 --json
  pymon capture --pid 4711 --counters --seconds 5
"""


@click.command("capture", epilog=_EPILOG)
@click.option(
    "--pid", "pids", type=int, multiple=True, help="A process to capture; may be given often."
)
@click.option("--all", "everything", is_flag=True, help="All processes that can be captured.")
@click.option("--steps", type=click.IntRange(1, 50), default=3, show_default=True)
@click.option(
    "--counters", is_flag=True, help="Hardware counters of their GPUs instead of a profile."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, LONGEST_S, min_open=True),
    default=2.0,
    show_default=True,
    help="How long counters are sampled; the GPUs' clocks are locked meanwhile.",
)
@click.option(
    "--socket", type=click.Path(path_type=Path), help="The daemon's socket, if not the usual one."
)
@click.option("--json", "as_json", is_flag=True, help="The receipts and diagnoses as JSON.")
def command(
    pids: tuple[int, ...],
    everything: bool,
    steps: int,
    counters: bool,
    seconds: float,
    socket: Path | None,
    as_json: bool,
) -> int:
    """Take a profiler capture of running training processes now, or sample their GPUs' counters.

    Exits with 0 if at least one trace or burst of counters was written.
    """
    if bool(pids) == everything:
        raise click.UsageError("give --pid N, or --all")
    path = socket or agent_client.find()
    request = wire.Request("capture", list(pids), steps, timeout_s=TIMEOUT_S)
    if counters:
        request = wire.Request("counters", list(pids), timeout_s=TIMEOUT_S, for_s=seconds)
    body = agent_client.ask(path, request, lambda line: click.echo(line, err=True)).body
    if as_json:
        click.echo(json.dumps(body, indent=2))
    else:
        _tell(body)
    written = any(receipt["status"] == "written" for receipt in body["receipts"])
    return 0 if written else 1


def _tell(body: dict[str, Any]) -> None:
    for receipt in body["receipts"]:
        why = f": {receipt['reason']}" if receipt["reason"] else ""
        who = f"pid {receipt['pid']}" if receipt["pid"] else "capture"
        click.echo(f"{who}: {receipt['status']}{why}")
        for file in receipt["files"]:
            click.echo(f"  {Path(body['folder'], file['name'])}")
    for burst in body.get("counters", ()):
        click.echo("\n".join(lines(msgspec.convert(burst, CounterBurst))))
    for diagnosis in body["diagnoses"]:
        click.echo(f"{diagnosis['title']}")
        for advice in diagnosis["advice"]:
            click.echo(f"  - {advice}")
    if problem := body.get("problem"):
        click.echo(f"diagnosis: {problem}")
    if body["report"]:
        click.echo(f"report: {body['report']}")

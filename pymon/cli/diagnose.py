"""`pymon diagnose`: traces in, causes out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from pymon.base.errors import InputError
from pymon.base.units import human_seconds
from pymon.diagnosis import diagnose
from pymon.model.trace import TraceFacts, TraceReport

PROGRESS_FROM_BYTES = 4 << 20  # smaller files are read before a bar could be seen


@click.command(
    name="diagnose",
    epilog="""\b
Examples:
  pymon diagnose trace.json.gz
  pymon diagnose captures/20261201-101500-step_slow
  pymon diagnose rank*.json.gz --html report.html
  pymon diagnose trace.json --json | jq '.diagnoses[0].title'
""",
)
@click.argument("trace", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--json", "as_json", is_flag=True, help="Print facts and diagnoses as one JSON object."
)
@click.option(
    "--html",
    "html_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a self-contained HTML report to this file.",
)
def command(trace: tuple[Path, ...], as_json: bool, html_file: Path | None) -> None:
    """Read profiler traces and name the cause of slow steps.

    TRACE is a Kineto trace (.json or .json.gz, also one that pymon did not take) or the folder of a
    capture. Several are taken as the ranks of one run.

    Exit code 0: read and judged. 2: a file is missing, is no trace, is cut short, or has lost its
    GPU events; what was learnt is printed all the same. A trace of training on the CPU is judged by
    the host's time.
    """
    with _progress(trace) as progress:
        report = diagnose(trace, progress)
    if html_file is not None:
        _write_html(report, html_file)
    _print(report, as_json)
    _complain(report)


def _print(report: TraceReport, as_json: bool) -> None:
    # The renderers are loaded when one is needed: rich takes longer than a small trace.
    if as_json:
        from pymon.reports.json import render as render_json

        click.echo(render_json(report))
        return
    from rich.console import Console

    from pymon.reports.terminal import render

    Console(highlight=False, soft_wrap=not sys.stdout.isatty()).print(render(report))


def _write_html(report: TraceReport, html_file: Path) -> None:
    from pymon.reports.html import render

    names = ", ".join(Path(facts.path).name for facts in report.traces[:3])
    more = f" and {len(report.traces) - 3} more" if len(report.traces) > 3 else ""
    try:
        html_file.write_text(render(report, f"Diagnosis of {names}{more}"), encoding="utf-8")
    except OSError as err:
        raise InputError(f"{html_file}: cannot be written ({err.strerror})") from err
    click.echo(f"report: {html_file}", err=True)


def _complain(report: TraceReport) -> None:
    """The one line of bad input; `pymon.cli` makes exit code 2 of it."""
    complaints = [*report.problems, *(text for facts in report.traces if (text := _defect(facts)))]
    if complaints:
        raise InputError("; ".join(complaints))


def _defect(facts: TraceFacts) -> str:
    if facts.usable and not facts.cut_short:
        return ""
    what = facts.problems[0] if facts.problems else "nothing in it can be judged"
    learnt = f"{facts.events_total:,} events over {human_seconds(facts.window_s)}"
    steps = f", {facts.steps_total} steps" if facts.steps_total else ""
    return f"{facts.path}: {what}; learnt from what is there: {learnt}{steps}"


@contextmanager
def _progress(paths: tuple[Path, ...]) -> Iterator[Callable[[Path, int], None] | None]:
    """A bar on a terminal where the files are large enough for one; else nothing."""
    if not sys.stderr.isatty() or sum(map(_size_bytes, paths)) < PROGRESS_FROM_BYTES:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[Path, int] = {}

        def show(path: Path, done_bytes: int) -> None:
            if path not in tasks:
                tasks[path] = bar.add_task(f"reading {path.name}", total=_size_bytes(path))
            bar.update(bar.task_ids[list(tasks).index(path)], completed=done_bytes)

        yield show


def _size_bytes(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(_size_bytes(child) for child in path.iterdir())
        return path.stat().st_size
    except OSError:
        return 0

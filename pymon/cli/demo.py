"""`pymon demo`: the whole loop on a real training run, with a fault planted on purpose.

A real daemon watches a real training process; the demo only looks on, by the same request that
`pymon run` uses for its summary. It succeeds if the diagnosis names what was planted.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import msgspec
from rich.console import Console

from pymon.base.errors import PymonError
from pymon.base.units import human_seconds
from pymon.cli import agent as agent_client
from pymon.cli.child_env import training_environment
from pymon.cli.private_daemon import PrivateDaemon, new_run_id, state_folder
from pymon.cli.progress import Progress
from pymon.demo.faults import RULES, TRAIN, WORDS, Planted, named
from pymon.link import wire
from pymon.model.diagnosis import Diagnosis
from pymon.model.run import RunCapture, RunSummary

TRAINING_LOG = "training.log"
FAULT_AFTER_S = 10.0  # a detector must have seen what is normal
READY_S = 20.0
GIVE_UP_S = 110.0  # of one training
TRAININGS_MAX = 5
_POLL_S = 0.3


class Disturbed(Exception):
    """Something was noticed before there was a fault: other work on the machine slowed the training down.

    What was noticed once is not captured again for minutes, so only a new training can show the fault.
    """


@click.command("demo")
@click.option("--fault", type=click.Choice(list(RULES)), default="data-loader", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for captures and reports.  [default: pymon's state folder]",
)
def command(fault: str, as_json: bool, keep: Path | None) -> int:
    """Plant a fault in a real training run and watch pymon find it.

    Exit code 0 only if the diagnosis names the planted cause.
    """
    _need_torch()
    run_id = new_run_id(f"demo-{fault}")
    folder = (keep or state_folder() / run_id).absolute()
    signal.signal(signal.SIGTERM, _end)
    console = Console(highlight=False)
    with Progress(console, quiet=as_json) as progress, _daemon(run_id, folder) as daemon:
        progress.say(f"pymon daemon started; captures and reports go to {folder}")
        for left in reversed(range(TRAININGS_MAX)):
            try:
                with _training(fault, run_id, daemon.socket, folder) as training:
                    pid = training.pid
                    progress.say(f"training started: {TRAIN.name}, pid {pid}; it is fine at first")
                    capture = _watch(daemon.socket, run_id, fault, training, progress, folder)
                break
            except Disturbed as noise:
                if not left:
                    raise PymonError(f"this machine is too busy for a demo: {noise}") from None
                progress.say(
                    f"before any fault: {noise}; other work on this machine, so: once more"
                )
    found = named(capture, fault) if capture else None
    if as_json:
        click.echo(json.dumps(_as_json(fault, capture, found), indent=2))
    elif capture is not None:
        _show(console, capture, fault, found)
    if capture is None:
        raise PymonError(f"no diagnosis within {GIVE_UP_S:.0f} s; see {folder / 'daemon.log'}")
    return 0 if found else 1


def _watch(
    socket: Path,
    run_id: str,
    fault: str,
    training: subprocess.Popen[bytes],
    progress: Progress,
    folder: Path,
) -> RunCapture | None:
    """Tells what happens; the capture whose diagnosis came, or None when time is up. Raises Disturbed."""
    deadline_s = time.monotonic() + GIVE_UP_S
    told: set[str] = set()
    last: RunCapture | None = None

    def once(key: str, text: str, style: str = "") -> None:
        if key not in told:
            told.add(key)
            progress.say(text, style)

    while time.monotonic() < deadline_s:
        if training.poll() is not None:
            raise PymonError(
                f"the training ended by itself with {training.returncode}: {_last_line(folder)}; "
                f"see {folder / TRAINING_LOG}"
            )
        summary = _of(training.pid, _summary(socket, run_id))
        planted = Planted.told((folder / TRAINING_LOG).read_text(errors="replace"))
        for process in summary.processes:
            median = process.median_step_s
            pace = f", median {human_seconds(median)}" if median is not None else ""
            once("attached", f"the probe attached to pid {process.pid}: steps are being counted")
            progress.now(f"{process.steps_total:,} steps{pace}")
            if planted is not None:
                once("planted", f"step {planted.step}: fault planted: {WORDS[fault]}", "yellow")
        for incident in summary.incidents:
            if planted is None or not planted.is_before(incident):
                raise Disturbed(incident.finding.summary)
            once(incident.incident_id, f"noticed: {incident.finding.summary}", "bold red")
        for capture in summary.captures:
            once(capture.capture_id, f"captured: {_receipts(capture)}")
            if planted is not None and planted.is_in(capture) and capture.report_path is not None:
                last = capture
                if named(capture, fault):
                    return capture
        time.sleep(_POLL_S)
    return last


def _of(pid: int, summary: RunSummary) -> RunSummary:
    """What concerns this training, and not the one before it."""
    return replace(
        summary,
        processes=tuple(one for one in summary.processes if one.pid == pid),
        incidents=tuple(one for one in summary.incidents if one.finding.subject.pid == pid),
        captures=tuple(one for one in summary.captures if pid in {r.pid for r in one.receipts}),
    )


def _last_line(folder: Path) -> str:
    lines = (folder / TRAINING_LOG).read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _receipts(capture: RunCapture) -> str:
    said = (f"{one.status.value} {one.reason}".strip() for one in capture.receipts)
    return f"{', '.join(said)} ({capture.folder})"


def _summary(socket: Path, run_id: str) -> RunSummary:
    reply = agent_client.ask(socket, wire.Request("summary", run_id=run_id, timeout_s=10.0))
    return msgspec.convert(reply.body, RunSummary)


def _show(console: Console, capture: RunCapture, fault: str, found: Diagnosis | None) -> None:
    for diagnosis in capture.diagnoses:
        console.print(f"diagnosis: {diagnosis.title}", style="bold", markup=False, soft_wrap=True)
        for evidence in diagnosis.evidence:
            console.print(f"  {evidence.text}: {evidence.value}", markup=False, soft_wrap=True)
        for site in diagnosis.sites[:3]:
            place = f"{site.file}:{site.line}"
            console.print(f"  {site.call} at {place}", markup=False, soft_wrap=True)
        for advice in diagnosis.advice:
            console.print(f"  -> {advice}", markup=False, soft_wrap=True)
    console.print(f"report: {capture.report_path}", markup=False, soft_wrap=True)
    if found:
        console.print(f"The diagnosis names the planted fault ({fault}).", style="bold green")
    else:
        console.print(f"The diagnosis does not name the planted fault ({fault}).", style="bold red")


def _as_json(fault: str, capture: RunCapture | None, found: Diagnosis | None) -> object:
    return {
        "fault": fault,
        "named": found is not None,
        "capture": msgspec.to_builtins(capture),
        "report": capture.report_path if capture else None,
    }


@contextlib.contextmanager
def _daemon(run_id: str, folder: Path) -> Iterator[PrivateDaemon]:
    try:
        daemon = PrivateDaemon.join(run_id, kineto=False, key=run_id, state_dir=folder)
    except OSError as err:
        raise PymonError(f"the daemon cannot be started: {err}") from None
    try:
        deadline_s = time.monotonic() + READY_S
        while not daemon.hold():
            if (reason := daemon.died()) or time.monotonic() > deadline_s:
                raise PymonError(f"the daemon did not start: {reason or 'no answer'}")
            time.sleep(0.05)
        yield daemon
    finally:
        daemon.leave(end=True)


@contextlib.contextmanager
def _training(
    fault: str, run_id: str, socket: Path, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["--fault", fault, "--fault-after-s", str(FAULT_AFTER_S)]
    with open(folder / TRAINING_LOG, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(TRAIN), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=training_environment(os.environ, run_id, socket),
            start_new_session=True,  # a Ctrl-C is the demo's: it ends the training itself
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise PymonError(
            "the demo trains with PyTorch, which is not installed here: pip install torch "
            "--index-url https://download.pytorch.org/whl/cpu (about 200 MB), or use `make demo`"
        )


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)  # by way of the `finally`s

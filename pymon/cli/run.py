"""`pymon run -- COMMAND`: the training command under watch, and a summary at its end.

Nothing here may fail the training: trouble with the daemon is one line, and the command runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

from pymon.base.errors import PymonError
from pymon.cli import agent as agent_client
from pymon.cli import training_command
from pymon.cli.child_env import training_environment
from pymon.cli.private_daemon import PrivateDaemon, new_run_id
from pymon.link import socket as agent
from pymon.link import wire
from pymon.model.run import RunSummary

READY_WAIT_S = 5.0  # at the end of a run so short that its daemon does not listen yet
CAPTURE_WAIT_S = 15.0  # for a capture under way when the training ends: its report is worth that
_POLL_S = 0.2


@dataclass
class _Watch:
    """Whom the run is reported to: the node's daemon, a private one, or nobody."""

    run_id: str
    node_socket: Path | None = None
    private: PrivateDaemon | None = None

    @property
    def socket(self) -> Path | None:
        """Where that daemon answers now; a private one's moves when the run ends."""
        return self.private.socket if self.private else self.node_socket

    def ready(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.private is None or self.private.hold() or bool(self.private.died())

    def tell(self, pid: int, status: int) -> None:
        """Nobody but the parent is sure to know how a process ended."""
        request = wire.Request(
            "ended", [pid], run_id=self.run_id, wait_status=status, timeout_s=1.0
        )
        with contextlib.suppress(PymonError):
            if self.socket is not None:
                agent_client.ask(self.socket, request)


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--name", default="", help="What the run is called in reports.")
@click.option("--no-daemon", is_flag=True, help="Start no private daemon where none answers.")
@click.option("--no-summary", is_flag=True, help="Print nothing at the end.")
@click.option("--kineto", is_flag=True, help="Switch on Kineto's own daemon mode too.")
@click.argument("command_line", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(
    name: str, no_daemon: bool, no_summary: bool, kineto: bool, command_line: tuple[str, ...]
) -> int:
    """Run a training command under watch; a summary stands at its end.

    The command's output, signals and exit code stay its own. Where no daemon watches the node, a
    private one runs along, and ends with the training.
    """
    if not command_line:
        raise click.UsageError("which command? For example: pymon run -- python train.py")
    if os.environ.get("PYMON") == "0" or _inside_another_run():
        _become(command_line, dict(os.environ))
    watch = _watch(new_run_id(name or _name(command_line)), no_daemon, kineto)
    env = training_environment(os.environ, watch.run_id, watch.socket, kineto)
    if watch.socket is None:
        _become(command_line, env)
    try:
        status = training_command.run(command_line, env, watch.ready, watch.tell)
    except OSError as err:
        _leave(watch, end=True)
        return _not_started(command_line[0], err)
    with contextlib.suppress(KeyboardInterrupt):  # the second Ctrl-C: no summary then
        _finish(watch, no_summary)
    return training_command.end_like(status)


def _watch(run_id: str, no_daemon: bool, kineto: bool) -> _Watch:
    if path := agent.find():
        return _Watch(run_id, path)
    if no_daemon:
        return _Watch(run_id)
    try:
        private = PrivateDaemon.join(run_id, kineto)
    except (OSError, RuntimeError, ValueError, KeyError) as err:  # no home, a folder not writable
        _say(f"no private daemon could be started ({err}); the command runs unwatched")
        return _Watch(run_id)
    return _Watch(private.run_id, private=private)


def _finish(watch: _Watch, no_summary: bool) -> None:
    """Everything after the command's end; says what it could not do, and raises nothing."""
    end = True
    try:
        if watch.private is not None and not watch.private.is_last():
            end = False  # another task of the job will speak for all
        elif watch.private is None or _wait_until_ready(watch.private):
            summary = _summary(watch)
            end = all(process.ended is not None for process in summary.processes)
            if not no_summary:
                _print(summary)
    except PymonError as err:
        if not no_summary:
            _say(f"no summary: {err}")
    finally:
        _leave(watch, end)


def _wait_until_ready(private: PrivateDaemon) -> bool:
    deadline_s = time.monotonic() + READY_WAIT_S
    while not private.hold() and not private.died() and time.monotonic() < deadline_s:
        time.sleep(_POLL_S / 4)
    if reason := private.died():
        raise PymonError(f"the private daemon ended early: {reason}")
    return private.hold()


def _summary(watch: _Watch) -> RunSummary:
    import msgspec  # here: it costs the start of the training nothing

    assert watch.socket is not None
    _wait_for_captures(watch.socket)
    reply = agent_client.ask(watch.socket, wire.Request("summary", run_id=watch.run_id))
    try:
        return msgspec.convert(reply.body, RunSummary)
    except msgspec.ValidationError as err:
        raise PymonError(f"the daemon is of another version: {err}") from None


def _wait_for_captures(path: Path) -> None:
    """A capture under way holds the reason why somebody should look at this run."""
    deadline_s = time.monotonic() + CAPTURE_WAIT_S
    said = False
    while time.monotonic() < deadline_s:
        status = agent_client.ask(path, wire.Request("status", timeout_s=5.0)).body
        if not any(capture.get("under_way") for capture in status.get("captures", [])):
            return
        if not said:
            _say(f"a capture is being read, {CAPTURE_WAIT_S:.0f} s at most (Ctrl-C skips it)")
            said = True
        time.sleep(_POLL_S)
    _say("the capture is not read yet; its report follows in its folder")


def _print(summary: RunSummary) -> None:
    from rich.console import Console

    from pymon.reports import run_terminal

    Console(stderr=True, highlight=False, soft_wrap=True).print(run_terminal.render(summary))


def _leave(watch: _Watch, end: bool) -> None:
    if watch.private is not None:
        watch.private.leave(end)


def _inside_another_run() -> bool:
    """The outer run watches this one's processes too, and has the last word."""
    return bool(os.environ.get("PYMON_RUN_ID")) and agent.find() is not None


def _become(argv: tuple[str, ...], env: dict[str, str]) -> None:
    """There is nothing to wait for: the command takes this process over."""
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would pass that on
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as err:
        sys.exit(_not_started(argv[0], err))


def _not_started(name: str, err: OSError) -> int:
    """Exit codes as a shell gives them."""
    _say(f"cannot run {name}: {err.strerror or err}")
    return 127 if isinstance(err, FileNotFoundError) else 126


def _name(argv: tuple[str, ...]) -> str:
    """The script's name, else the command's."""
    scripts = [part for part in argv if part.endswith(".py")]
    return Path(scripts[0] if scripts else argv[0]).stem


def _say(text: str) -> None:
    print(f"pymon: {text}", file=sys.stderr)

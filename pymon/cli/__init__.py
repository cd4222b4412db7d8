"""The command `pymon`: the visible list of commands, and the only place that makes exit codes.

A command lives in `pymon/cli/<name>.py` as `command`. Its module is loaded when it is called, so
that `pymon run` starts the training without waiting for what only the daemon needs.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from pymon import __version__
from pymon.base.errors import InputError, PymonError

# Name and what `pymon --help` says of it, in the order in which people meet them.
COMMANDS = {
    "run": "Run a training command under watch; a summary stands at its end.",
    "demo": "Plant a fault in a real training run and watch pymon find it.",
    "diagnose": "Read profiler traces and name the cause of slow steps.",
    "daemon": "Watch this node: metrics, anomalies, captures, diagnoses.",
    "status": "Show what the daemon sees.",
    "blackbox": "Show the last steps of a process that ended, and how it ended.",
    "capture": "Take a profiler capture of running training processes now.",
    "disarm": "Quiet the probes of running trainings, until `pymon arm`.",
    "arm": "Take a `pymon disarm` back.",
    "release": "Let go of the NVIDIA driver for a while, for its upgrade.",
    "doctor": "Say what works here, what is absent, and why.",
}


class _Commands(click.Group):
    """The commands of COMMANDS, each imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"pymon.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pymon")
def cli() -> None:
    """Notices slow PyTorch training, captures it, names the cause and the fix."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process: 0 well, 1 failed, 2 wrong input, 130 Ctrl-C."""
    sys.exit(_exit_code(arguments))


def _exit_code(arguments: list[str] | None) -> int:
    try:
        result: Any = cli.main(arguments, prog_name="pymon", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as err:
        return err.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return 130
    except click.UsageError as err:
        hint = f" (pymon {err.ctx.info_name} --help)" if err.ctx and err.ctx.parent else ""
        _say(f"{err.format_message()}{hint}")
        return 2
    except InputError as err:
        _say(str(err))
        return 2
    except (PymonError, click.ClickException) as err:
        _say(err.format_message() if isinstance(err, click.ClickException) else str(err))
        return 1
    except BrokenPipeError:
        # The reader left (`| head`). What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result if isinstance(result, int) else 0


def _say(text: str) -> None:
    print(f"pymon: {text}", file=sys.stderr)

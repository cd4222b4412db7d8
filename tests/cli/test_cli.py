"""The command line as a whole: its list, its help, its exit codes, its one-line errors."""

from __future__ import annotations

import importlib

import click
import pytest

from pymon import cli
from pymon.base.errors import InputError, PymonError


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_is_there_and_explains_itself(name):
    command = importlib.import_module(f"pymon.cli.{name}").command

    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.help


def test_help_lists_every_command_without_loading_it(pymon):
    done = pymon("--help")

    assert done.returncode == 0
    assert all(f"\n  {name} " in done.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (InputError("bad key"), 2, "pymon: bad key\n"),
        (PymonError("no luck"), 1, "pymon: no luck\n"),
        (KeyboardInterrupt(), 130, "\npymon: interrupted\n"),  # below the terminal's ^C
    ],
)
def test_errors_become_one_line_and_an_exit_code(monkeypatch, capsys, raised, code, text):
    @click.command("status")
    def failing():
        raise raised

    monkeypatch.setattr(cli._Commands, "get_command", lambda self, ctx, name: failing)

    with pytest.raises(SystemExit) as left:
        cli.main(["status"])

    assert left.value.code == code
    assert capsys.readouterr().err == text


def test_an_unknown_command_or_option_is_the_users_error(pymon):
    assert pymon("nonsense").returncode == 2
    done = pymon("run", "--nonsense", "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("pymon: No such option")
    assert "Traceback" not in done.stderr


def test_the_version(pymon):
    assert pymon("--version").stdout.startswith("pymon, version 0.")

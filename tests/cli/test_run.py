"""`pymon run`: the command's own output and exit code, whatever becomes of the daemon."""

from __future__ import annotations

import sys

SAYS_ENV = (
    "import os; print(*(os.environ.get(n) for n in ('PYMON', 'PYMON_RUN_ID', 'PYMON_SOCKET')))"
)


def test_without_a_daemon_the_command_just_runs(pymon):
    done = pymon("run", "--no-daemon", "--", sys.executable, "-c", SAYS_ENV)

    assert done.stdout.startswith("1 ")
    assert done.stderr == ""
    assert done.returncode == 0


def test_exit_code_and_output_pass_through(pymon):
    done = pymon("run", "--no-summary", "--", "sh", "-c", "echo out; echo err >&2; exit 9")

    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 9)


def test_the_name_of_the_run_is_in_its_id(pymon):
    done = pymon("run", "--name", "bert", "--no-summary", "--", sys.executable, "-c", SAYS_ENV)

    run_id = done.stdout.split()[1]
    assert run_id.startswith("bert-")


def test_options_of_the_command_are_the_commands(pymon):
    done = pymon("run", "--no-daemon", "echo", "--name", "x", "--help")

    assert done.stdout == "--name x --help\n"


def test_pymon_0_switches_everything_off(pymon):
    done = pymon("run", "--", sys.executable, "-c", SAYS_ENV, PYMON="0")

    assert done.stdout.split()[:2] == ["0", "None"]


def test_a_command_that_is_not_there_is_said_as_by_a_shell(pymon, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")

    missing, no_program = pymon("run", "--", "no-such-thing"), pymon("run", "--", plain)

    assert missing.returncode == 127
    assert missing.stderr == "pymon: cannot run no-such-thing: No such file or directory\n"
    assert no_program.returncode == 126


def test_no_command_is_an_input_error(pymon):
    done = pymon("run")

    assert done.returncode == 2
    assert "pymon run -- python train.py" in done.stderr


def test_a_state_folder_that_cannot_be_written_does_not_stop_the_training(pymon, tmp_path):
    (tmp_path / "file").write_text("")

    done = pymon("run", "--", "echo", "trained", XDG_STATE_HOME=str(tmp_path / "file"))

    assert (done.stdout, done.returncode) == ("trained\n", 0)
    assert done.stderr.count("\n") == 1
    assert "runs unwatched" in done.stderr

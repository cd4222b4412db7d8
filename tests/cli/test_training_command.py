"""The command under watch keeps its signals, stops and ends, as if pymon were not there."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.waiting import PATIENCE_S

WATCH = """
import os, sys
from pymon.cli import training_command
sys.exit(training_command.end_like(
    training_command.run(sys.argv[1:], os.environ, lambda: True)))
"""

COUNTS_SIGINT = """
import signal, sys, time
got = []
woken = got if sys.argv[1] == "SIGINT" else []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
signal.signal(signal.SIGCONT, lambda *_: woken is not got and woken.append(1))
print("ready", flush=True)
while not woken:  # by the signal that it is told to wait for
    time.sleep(0.01)
time.sleep(0.5)  # in which another one would come
print("interrupts", len(got), flush=True)
"""


def watched(*argv):
    return [sys.executable, "-c", WATCH, *argv]


def python(code, *argv):
    return watched(sys.executable, "-c", textwrap.dedent(code), *argv)


@pytest.fixture
def start(env):
    """Start a watched command; it is gone when the test is."""
    started = []

    def begin(argv, **more):
        process = subprocess.Popen(argv, env=env, text=True, **more)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_commands(start, code):
    assert start(watched("sh", "-c", f"exit {code}")).wait(PATIENCE_S) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGABRT])
def test_a_command_that_dies_of_a_signal_is_seen_to_die_of_it(start, number):
    assert (
        start(watched("sh", "-c", f"ulimit -c 0; kill -{number.value} $$")).wait(PATIENCE_S)
        == -number
    )


@pytest.mark.parametrize("name", ["TERM", "HUP", "USR1", "USR2", "INT", "QUIT"])
def test_a_signal_to_pymon_reaches_the_command(start, name):
    script = f"trap 'echo got; exit 7' {name}; echo ready; while :; do sleep 0.02; done"
    process = start(watched("bash", "-c", script), stdout=subprocess.PIPE)
    process.stdout.readline()

    process.send_signal(getattr(signal, f"SIG{name}"))

    assert process.stdout.readline() == "got\n"
    assert process.wait(PATIENCE_S) == 7


def test_ignored_hangups_stay_ignored(start):
    """As under nohup."""
    process = start(
        watched("sh", "-c", "kill -HUP $$; echo alive"),
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )

    assert process.communicate(timeout=PATIENCE_S)[0] == "alive\n"


def test_the_command_starts_with_plain_signal_settings(start):
    """Nothing blocked, and a broken pipe ends it: Python would ignore that."""
    process = start(
        watched("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"), stdout=subprocess.PIPE
    )

    masks = [
        int(line.split()[1], 16) for line in process.communicate(timeout=PATIENCE_S)[0].splitlines()
    ]
    internal = 3 << 31  # signals 32 and 33 are the C library's own; its posix_spawn ignores them

    assert [mask & ~internal for mask in masks] == [0, 0]


def _own_terminal(follower):
    def prepare():
        os.setsid()
        import fcntl
        import termios

        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    return prepare


def test_ctrl_c_at_a_terminal_reaches_the_command_once(start):
    leader, follower = pty.openpty()
    process = start(
        python(COUNTS_SIGINT, "SIGINT"),
        stdin=follower,
        stdout=subprocess.PIPE,
        preexec_fn=_own_terminal(follower),
    )
    process.stdout.readline()

    os.write(leader, b"\x03")

    assert process.communicate(timeout=PATIENCE_S)[0] == "interrupts 1\n"
    assert process.returncode == 0
    os.close(leader)
    os.close(follower)


SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # as a shell with job control does
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
_, status = os.waitpid(pid, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else f"ended {status}", flush=True)
os.tcsetpgrp(0, pid)
os.killpg(pid, signal.SIGCONT)
_, status = os.waitpid(pid, os.WUNTRACED)
print("then", os.waitstatus_to_exitcode(status), flush=True)
"""


def test_ctrl_z_stops_both_and_fg_goes_on(start):
    leader, follower = pty.openpty()
    argv = [sys.executable, "-c", SHELL, *python(COUNTS_SIGINT, "SIGCONT")[1:]]
    process = start(
        argv, stdin=follower, stdout=subprocess.PIPE, preexec_fn=_own_terminal(follower)
    )
    assert process.stdout.readline() == "ready\n"

    os.write(leader, b"\x1a")

    assert process.communicate(timeout=PATIENCE_S)[0] == "stopped\ninterrupts 0\nthen 0\n"
    os.close(leader)
    os.close(follower)


def test_the_tick_runs_until_it_is_done(start):
    code = """
    import os, sys
    from pymon.cli import training_command
    calls = []
    status = training_command.run(
        ["sleep", "0.7"], os.environ, lambda: calls.append(1) or len(calls) == 2)
    print(status, len(calls))
    """
    process = start([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)

    assert process.communicate(timeout=PATIENCE_S)[0] == "0 2\n"

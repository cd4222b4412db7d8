"""The command under watch as a child: its signals, its stops, its end are those of its own.

Parent and child share the terminal's process group, so a Ctrl-C reaches both: a signal that the
kernel itself sent (the terminal's) is not passed on, one that somebody sent to the parent is.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence

_FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
}
_JOB_CONTROL_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # at its start; the child gets the default
_SI_USER = 0  # si_code of kill(2); the terminal's signals carry SI_KERNEL
_TICK_S = 0.2


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    tick: Callable[[], bool],
    ended: Callable[[int, int], None] = lambda pid, status: None,
) -> int:
    """Runs it to its end and gives its wait status; raises OSError where it cannot be started.

    `tick` is called a few times a second until it returns True, `ended` once, with the pid and the wait status.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited as ignored, waitpid would find nobody
    watched = {*_FORWARDED, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        pid = os.posix_spawnp(argv[0], [*argv], env, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON)
        status = _wait(pid, watched, tick)
        ended(pid, status)
        return status
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # one that was meant for the child
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(pid: int, watched: set[signal.Signals], tick: Callable[[], bool]) -> int:
    done = False
    while True:
        done = done or tick()
        info = signal.sigtimedwait(watched, 1.0 if done else _TICK_S)
        ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if ended and not os.WIFSTOPPED(status):
            return status
        if ended and os.WSTOPSIG(status) in _JOB_CONTROL_STOPS:
            os.kill(os.getpid(), signal.SIGSTOP)  # so that the shell gets its prompt back
        if info is not None and info.si_signo in _FORWARDED and info.si_code <= _SI_USER:
            os.kill(pid, info.si_signo)


def end_like(status: int) -> int:
    """The exit code to leave with; a child that died of a signal takes this process the same way.

    A shell stops its script on Ctrl-C only where the command died of it.
    """
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core is the child's, not ours
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return 128 + number

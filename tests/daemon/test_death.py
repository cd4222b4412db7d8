import asyncio
import os
import signal
import subprocess
import sys

import pytest

from pymon.daemon import death
from pymon.daemon.death import in_words, watching
from pymon.daemon.peers import Peer
from tests.waiting import PATIENCE_S


def how(code, reaped, grace_s=PATIENCE_S):
    """What is told of a child's end; `reaped`: before it is asked."""
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)

    async def ask():
        watch = death.Watch(Peer(child.pid, os.getuid()), os.pidfd_open(child.pid))
        asking = asyncio.ensure_future(watch.how(grace_s))
        await asyncio.sleep(0)
        child.stdin.close()
        if reaped:
            await asyncio.to_thread(child.wait)
        try:
            return await asking
        finally:
            os.close(watch.pidfd)

    try:
        return asyncio.run(ask())
    finally:
        child.kill()
        child.wait()


ENDS = [
    ("pass", "exited"),
    ("raise SystemExit(3)", "exit code 3"),
    ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
]


@pytest.mark.parametrize(("code", "said"), ENDS)
def test_the_end_of_a_process_that_nobody_has_waited_for(code, said):
    assert how(f"import sys; sys.stdin.read(); {code}", reaped=False) == said


@pytest.mark.parametrize(("code", "said"), ENDS)
def test_the_end_of_a_process_that_its_parent_has_waited_for(code, said):
    told = how(f"import sys; sys.stdin.read(); {code}", reaped=True)

    assert told in (said, "unknown")  # before Linux 6.15 the kernel may have forgotten it


def test_a_process_that_lives_has_not_ended():
    assert how("import time; time.sleep(60)", reaped=False, grace_s=0.1) is None


def test_what_a_kernel_hides_is_unknown_and_no_good_end(monkeypatch):
    monkeypatch.setattr(death, "REAP_WAIT_S", 0.1)
    monkeypatch.setattr(death, "_GET_INFO", 0)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # a zombie's code then shows as 0

    assert how("import sys; sys.stdin.read()", reaped=False) == "unknown"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, "exited"),
        (256, "exit code 1"),
        (signal.SIGSEGV | 0x80, "killed by SIGSEGV"),  # with a core
        (33, "killed by signal 33"),
    ],
)
def test_wait_statuses_in_words(status, said):
    assert in_words(status) == said


def test_a_peer_of_another_pid_namespace_cannot_be_watched():
    async def ask():
        with watching(None, Peer(0, 1000)) as watch:
            return await watch.how(0.0)

    assert asyncio.run(ask()) == "unknown"

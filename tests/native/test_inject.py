"""The injected library in a program that knows nothing of pymon, by the double of the driver."""

import array
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import pymon.native
from pymon.link.page import PageReader
from tests.native.build import gpu_doubles
from tests.waiting import PATIENCE_S, until

LIBRARY = Path(pymon.native.__file__).with_name("libpymon_inject.so")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not LIBRARY.exists(), reason="libpymon_inject.so is not built"),
]

PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == NULL || ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0) != 0) return 2;
  puts("up");
  fflush(stdout);
  if (count > 1 && strcmp(arguments[1], "environment") == 0) {
    setenv("PYMON_JOB_ID", "another", 1);
    setenv("PYMON_SOCKET", "/nonexistent", 1);
  }
  if (count > 1 && strcmp(arguments[1], "fork") == 0 && getchar() != EOF) {
    int child = fork();
    if (child == 0) { pause(); _exit(0); }
    printf("child %d\\n", child);
    fflush(stdout);
  }
  while (getchar() != EOF) {}
  return 0;
}
"""
SCRIPT = "kernel nvjet_hsh 20000 0 7 500\ncopy h2d 4096 1000 10\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inject")
    source = folder / "plain.c"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", source, "-o", folder / "plain", "-ldl"], check=True)
    return folder / "plain"


@pytest.fixture
def listener(tmp_path):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(str(tmp_path / "agent.sock"))
    sock.listen()
    sock.settimeout(PATIENCE_S)
    yield sock
    sock.close()


@contextmanager
def running(program, tmp_path, *arguments, **env):
    script = tmp_path / "script"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(gpu_doubles()),
            "CUDA_INJECTION64_PATH": str(LIBRARY),
            "PYMON_SOCKET": str(tmp_path / "agent.sock"),
            "DOUBLE_CUPTI_SCRIPT": str(script),
            "RANK": "3",
            "PYMON_JOB_ID": 'a "job"\n',
            **env,
        },
    )
    assert process.stdout.readline() == "up\n"
    yield process
    if process.poll() is None:
        process.communicate(timeout=PATIENCE_S)


def attached(listener):
    """The connection of the injected library, its hello, and its page."""
    sock, _ = listener.accept()
    sock.settimeout(PATIENCE_S)
    data, ancillary, _, _ = sock.recvmsg(65536, 64)
    fds = array.array("i", ancillary[0][2])
    page = PageReader.open(fds[0])
    os.close(fds[0])
    return sock, json.loads(data), page


def test_a_program_that_knows_nothing_of_pymon_is_measured(program, listener, tmp_path):
    with running(program, tmp_path) as process:
        sock, hello, page = attached(listener)
        until(lambda: page.cupti().records_total == 510)
        work = dict(page.cupti().work)
        assert (work["gemm"].count, work["gemm"].ns_total) == (500, 10_000_000)
        assert work["copy_host_to_device"].bytes_total == 40_960
        assert page.gpu().state == "absent"
        assert "injection" in page.gpu().reason
        assert (hello["pid"], hello["rank"], hello["script"]) == (process.pid, 3, "plain")
        assert hello["job_id"] == 'a "job"?'
        assert hello["attach_id"] == page.header.attach_id
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert page.cupti().state == "disarmed"
        sock.close()


def test_a_capture_order_is_refused_with_the_reason_and_the_daemon_may_come_back(
    program, listener, tmp_path
):
    with running(program, tmp_path):
        sock, _, page = attached(listener)
        sock.send(json.dumps({"type": "capture", "capture_id": "c-1", "spool": "/x"}).encode())
        receipt = json.loads(sock.recv(65536))
        assert (receipt["type"], receipt["status"], receipt["capture_id"]) == (
            "receipt",
            "refused",
            "c-1",
        )
        assert "injection" in receipt["reason"]
        sock.send(b"\xff garbage")
        sock.close()
        again, _, page_again = attached(listener)
        assert page_again.header.attach_id == page.header.attach_id
        again.close()


def test_without_a_daemon_the_program_runs_and_ends_as_ever(program, tmp_path):
    with running(program, tmp_path) as process:
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_a_forks_child_lets_go_of_page_and_connection(program, listener, tmp_path):
    with running(program, tmp_path, "fork") as process:
        sock, _, page = attached(listener)
        until(lambda: page.cupti().records_total == 510)
        assert {"page", "socket"} <= held(process.pid)
        process.stdin.write("x")
        process.stdin.flush()
        child = int(process.stdout.readline().split()[1])
        try:
            until(lambda: held(child) == set())
            assert page.cupti().state == "running"
        finally:
            os.kill(child, signal.SIGKILL)
        sock.close()


def held(pid):
    """Which of pymon's two things this process holds."""
    names = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return {"page" for name in names if "memfd:pymon-page" in name} | {
        "socket" for name in names if name.startswith("socket:")
    }


def test_a_daemon_that_rejects_the_page_is_left_alone(program, listener, tmp_path):
    with running(program, tmp_path):
        sock, _, _ = attached(listener)
        sock.send(json.dumps({"type": "reject", "reason": "no"}).encode())
        assert sock.recv(1) == b""  # it has hung up
        listener.settimeout(3)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_the_environment_may_change_while_it_runs(program, listener, tmp_path):
    """It is read once, before the program goes on: who reads it later may meet a half-changed one."""
    with running(program, tmp_path, "environment"):
        sock, hello, _ = attached(listener)
        sock.close()
        again, hello_again, _ = attached(listener)
        assert hello["job_id"] == hello_again["job_id"] == 'a "job"?'
        again.close()


@pytest.mark.parametrize("value", ["0", "1"])
def test_it_stands_back_for_the_probe_and_where_pymon_is_not_wanted(
    program, listener, tmp_path, value
):
    listener.settimeout(1)
    with running(program, tmp_path, PYMON=value), pytest.raises(TimeoutError):
        listener.accept()


def test_with_a_libcupti_that_is_none_the_program_runs_and_the_page_says_why(
    program, listener, tmp_path
):
    libraries = tmp_path / "lib"
    libraries.mkdir()
    os.symlink(gpu_doubles() / "libcuda.so.1", libraries / "libcuda.so.1")
    empty = ["gcc", "-shared", "-x", "c", "/dev/null", "-o", libraries / "libcupti.so.13"]
    subprocess.run(empty, check=True)
    with running(program, tmp_path, LD_LIBRARY_PATH=str(libraries)):
        sock, _, page = attached(listener)
        until(lambda: page.cupti().state == "absent")
        assert "libcupti lacks cuptiGetVersion" in page.cupti().reason
        sock.close()


def test_only_the_entry_is_visible_and_no_cplusplus_library_is_needed():
    symbols = subprocess.check_output(["nm", "-D", "--defined-only", LIBRARY], text=True)
    assert [line.split()[-1] for line in symbols.splitlines()] == ["InitializeInjection"]
    needed = subprocess.check_output(["readelf", "-d", LIBRARY], text=True)
    assert "libstdc++" not in needed
    assert "libgcc_s" not in needed
    assert "libcu" not in needed


def test_the_entry_answers_1_without_a_driver():
    """And the thread that it starts finds nothing to do, and harms nothing."""
    program = f"import ctypes, time; print(ctypes.CDLL({str(LIBRARY)!r}).InitializeInjection()); time.sleep(1)"
    env = {name: value for name, value in os.environ.items() if name != "PYMON"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=env | {"PYMON_SOCKET": "/nonexistent/agent.sock"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")

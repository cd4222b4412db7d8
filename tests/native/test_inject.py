"""The injected library in a program that knows nothing of pymon, by the double of the driver."""

import array
import ctypes
import json
import os
import socket
import subprocess
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
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == NULL || ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0) != 0) return 2;
  puts("up");
  fflush(stdout);
  if (count > 1 && getchar() != EOF) {  /* a child that goes on while the parent does */
    if (fork() == 0) { sleep(1); _exit(0); }
    int status;
    wait(&status);
    printf("child %d\\n", status);
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
        process.stdin.write("x")
        process.stdin.flush()
        assert process.stdout.readline() == "child 0\n"
        assert page.cupti().state == "running"
        sock.close()


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
    library = ctypes.CDLL(str(LIBRARY))
    os.environ["PYMON"] = "0"
    try:
        assert library.InitializeInjection() == 1
    finally:
        del os.environ["PYMON"]

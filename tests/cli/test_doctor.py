"""`pymon doctor` says of each GPU layer what keeps it off, and touches no CUPTI without a driver."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pymon.cli import doctor as doctor_command
from tests.native.build import gpu_doubles


def doctor(*arguments, **env):
    done = subprocess.run(
        [sys.executable, "-m", "pymon", "doctor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )
    return done.returncode, done.stdout


def checks(**env):
    return {check["name"]: check for check in json.loads(doctor("--json", **env)[1])["checks"]}


@pytest.fixture
def with_driver():
    """The environment of a machine with a driver: the doubles of libcuda and libcupti."""
    return {"LD_LIBRARY_PATH": str(gpu_doubles())}


def has_driver():
    return os.path.exists("/proc/driver/nvidia/version")


@pytest.mark.skipif(has_driver(), reason="this machine has a driver")
class TestWithoutADriver:
    def test_each_gpu_layer_is_absent_with_its_reason_and_nothing_is_broken(self):
        code, text = doctor()
        assert code == 0
        lines = {line.split()[1]: line for line in text.splitlines()}
        assert "no NVIDIA driver" in lines["cuda"]
        assert "no NVIDIA driver" in lines["cupti"]
        assert "no NVIDIA driver" in lines["counters"]
        assert lines["cupti"].startswith("absent")

    def test_strict_makes_it_exit_code_1(self):
        code, text = doctor("--strict", "--json")
        absent = {one["name"] for one in json.loads(text)["checks"] if one["state"] == "absent"}
        assert {"cuda events", "cupti", "counters", "injection", "nvml"} <= absent
        assert code == 1

    def test_a_libcupti_without_a_driver_is_not_touched(self, tmp_path):
        # A libcupti whose every call crashes, as that of CUDA 13.2 does without a driver.
        source = tmp_path / "crashes.c"
        source.write_text("int cuptiGetVersion(void *v) { return *(volatile int *)0; }")
        library = tmp_path / "libcupti.so.13"
        subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
        code, text = doctor(LD_LIBRARY_PATH=str(tmp_path))
        assert code == 0
        assert "no NVIDIA driver" in text


@pytest.mark.timeout(600)
class TestWithADriver:
    def test_both_layers_can_run(self, with_driver):
        found = checks(**with_driver)
        assert found["cuda events"]["state"] == "ok"
        assert found["cupti"]["state"] == "ok"
        assert found["counters"]["state"] == "ok"

    def test_a_cupti_that_is_too_old_for_counters_still_sums_kernels(self, with_driver):
        found = checks(**with_driver, DOUBLE_CUPTI_VERSION="24")
        assert found["cupti"]["state"] == "ok"
        assert found["counters"]["state"] == "absent"
        assert "too old: PM sampling is used from CUDA 12.8" in found["counters"]["text"]

    @pytest.mark.parametrize(
        ("variable", "value", "says"),
        [
            ("NSYS_PROFILING_SESSION_ID", "7", "Nsight Systems"),
            ("TEARDOWN_CUPTI", "1", "TEARDOWN_CUPTI=1"),
            ("CUDA_INJECTION64_PATH", "/opt/x/libsanitizer-collection.so", "compute-sanitizer"),
            ("DOUBLE_CUPTI_VERSION", "130000", "13.0 without Update 1"),
            ("DOUBLE_CUPTI_VERSION", "18", "older than CUDA 12.4"),
        ],
    )
    def test_what_has_cupti_already_is_named(self, with_driver, variable, value, says):
        check = checks(**with_driver, **{variable: value})["cupti"]
        assert check["state"] == "absent"
        assert says in check["text"]

    def test_a_driver_without_a_gpu_is_no_place_for_the_layers(self, monkeypatch, tmp_path):
        probe = SimpleNamespace(gpu_why_not=lambda: ("", ""))
        monkeypatch.setattr(doctor_command.native, "probe", lambda: (probe, ""))
        monkeypatch.setattr(doctor_command, "DRIVER_GPUS", tmp_path)
        check = doctor_command._cuda_events()
        assert check.state == "absent"
        assert "no GPU" in check.text
        (tmp_path / "0000:17:00.0").mkdir()
        assert doctor_command._cuda_events().state == "ok"

    def test_a_debugger_of_the_gpu_is_named(self, with_driver, tmp_path):
        """By a double: a program of that name which traces the process, and does nothing else."""
        source = tmp_path / "tracer.c"
        source.write_text(TRACER)
        debugger = tmp_path / "cuda-gdb"
        subprocess.run(["gcc", source, "-o", debugger], check=True)
        done = subprocess.run(
            [debugger, sys.executable, "-m", "pymon", "doctor", "--json"],
            capture_output=True,
            text=True,
            env={**os.environ, **with_driver},
            check=False,
        )
        found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        assert found["cupti"]["text"] == "cuda-gdb is attached to this process"
        assert found["cupti"]["state"] == "absent"
        assert found["cuda events"]["state"] == "ok"


TRACER = """
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments) {
  int child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    execv(arguments[1], arguments + 1);
    _exit(127);
  }
  for (int status; waitpid(child, &status, 0) == child;) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    int number = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
    ptrace(PTRACE_CONT, child, 0, number == SIGTRAP ? 0 : number);
  }
  return 1;
}
"""

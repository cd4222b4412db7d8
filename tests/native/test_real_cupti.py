"""NVIDIA's own libcupti of each release: what pymon decides on it, each time in a process of its own.

Without a driver the real one is not to be trusted with any call (`WITHOUT_DRIVER`), so pymon must not look one up.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pymon import native
from tests.native.build import ROOT, gpu_doubles
from tests.native.cupti_wheels import RELEASES, library_of

SIGSEGV = -signal.SIGSEGV
# What cuptiGetVersion answers where there is no driver: nothing that tells a usable CUPTI from another.
WITHOUT_DRIVER = {"12.4": 0, "12.6": 0, "12.8": 0, "12.9": 0, "13.0-ga": 0, "13.0": 0, "13.1": 0}
WITHOUT_DRIVER |= {"13.2": SIGSEGV, "13.3": 999, "13.4": 999, "13.5": 999}
# Releases that tell their version on the double of libcuda; newer ones want more of a driver.
ON_THE_DOUBLE = ("12.4", "12.6", "12.8", "12.9", "13.0-ga", "13.0", "13.1")

PRELUDE = "import ctypes, json, os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
# As torch has it: loaded for all to see, before pymon is.
LOADED = PRELUDE + "ctypes.CDLL(os.environ['CUPTI'], mode=ctypes.RTLD_GLOBAL)\n"
WHY_NOT = "from pymon.native import _probe\nprint(json.dumps(_probe.gpu_why_not()))"
TRAINER = """
from pymon.native import _probe
_probe.open_page(bytes(16))
_probe.gpu_start(None, None, "", "", False)
assert _probe.gpu_yield(1000)
_probe.gpu_resume()
print(json.dumps(_probe.gpu_layers()["cupti"]))
"""
GET_VERSION = (
    "print(ctypes.CDLL(os.environ['CUPTI']).cuptiGetVersion(ctypes.byref(ctypes.c_uint())))"
)
EXPORTS = """
import re
text = open("csrc/gpu/cupti_abi.h").read()
library = ctypes.CDLL(os.environ['CUPTI'])
names = re.findall(r"X\\((cupti\\w+),", text)
print(json.dumps([name for name in names if not hasattr(library, name)]))
"""
STUB = """
#include "gpu/cuda_abi.h"
#define X(name, parameters) extern "C" int name() { return 34; }  // CUDA_ERROR_STUB_LIBRARY
PYMON_CUDA_FUNCTIONS(X)
"""

pytestmark = [
    pytest.mark.timeout(600),  # the first time it downloads
    pytest.mark.skipif(native.probe()[0] is None, reason=native.probe()[1]),
]


def ran(code: str, folder, *libraries, cupti=None) -> SimpleNamespace:
    """Exit code and answer of a process, and the CUPTI functions that it looked up, as the dynamic loader tells."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    env |= {"LD_LIBRARY_PATH": ":".join(map(str, libraries)), "CUPTI": str(cupti)}
    env |= {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(folder / "bindings")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=env, check=False
    )
    bindings = "".join(path.read_text() for path in folder.glob("bindings.*"))
    if not bindings:
        pytest.skip("the dynamic loader here tells nothing of its bindings")
    return SimpleNamespace(
        code=done.returncode,
        said=json.loads(done.stdout) if done.stdout else None,
        errors=done.stderr,
        looked_up=set(re.findall(r"symbol `(cupti[A-Z]\w+)'", bindings)),
    )


@pytest.mark.parametrize("release", RELEASES)
def test_it_has_what_the_loader_looks_for(release, tmp_path):
    done = ran(PRELUDE + EXPORTS, tmp_path, cupti=library_of(release))
    before_12_8 = release in ("12.4", "12.6")
    assert done.said == ["cuptiActivityEnableAllSyncRecords"] * before_12_8
    assert "cuptiActivityRegisterCallbacks" in done.looked_up


@pytest.fixture(scope="module")
def no_driver():
    code = "import ctypes; ctypes.CDLL('libcuda.so.1')"
    if (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode
        == 0
    ):
        pytest.skip("this machine has a driver")


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    """A folder with the stub that toolkits bring for linking: a libcuda without a driver."""
    folder = tmp_path_factory.mktemp("stub")
    (folder / "stub.cpp").write_text(STUB)
    command = ["g++", "-shared", "-fPIC", f"-I{ROOT / 'csrc'}", "-Wl,-soname,libcuda.so.1"]
    command += [str(folder / "stub.cpp"), "-o", str(folder / "libcuda.so.1")]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.usefixtures("no_driver")
class TestWithoutADriver:
    @pytest.mark.parametrize("release", RELEASES)
    def test_a_loaded_libcupti_stays_untouched(self, release, tmp_path):
        done = ran(LOADED + WHY_NOT, tmp_path, cupti=library_of(release))
        assert (done.code, done.errors, done.looked_up) == (0, "", set())
        assert done.said[1].startswith("no NVIDIA driver (libcuda.so.1")

    @pytest.mark.parametrize("release", RELEASES)
    def test_one_that_could_be_loaded_is_not(self, release, tmp_path):
        done = ran(PRELUDE + WHY_NOT, tmp_path, library_of(release).parent)
        assert (done.code, done.errors, done.looked_up) == (0, "", set())
        assert done.said[1].startswith("no NVIDIA driver (libcuda.so.1")

    @pytest.mark.parametrize("release", RELEASES)
    def test_layers_started_all_the_same_are_absent_and_the_process_ends_well(
        self, release, tmp_path
    ):
        done = ran(LOADED + TRAINER, tmp_path, cupti=library_of(release))
        assert (done.code, done.errors, done.looked_up) == (0, "", set())
        state, reason = done.said
        assert state == "absent"
        assert reason.startswith("no NVIDIA driver (libcuda.so.1")

    @pytest.mark.parametrize("release", WITHOUT_DRIVER)
    def test_why_its_own_answers_are_not_asked_for(self, release, tmp_path):
        done = ran(PRELUDE + GET_VERSION, tmp_path, cupti=library_of(release))
        assert (done.said if done.code == 0 else done.code) == WITHOUT_DRIVER[release]


class TestOnAStub:
    @pytest.mark.parametrize("release", RELEASES)
    def test_a_libcuda_without_a_driver_is_none(self, release, tmp_path, stub):
        done = ran(LOADED + WHY_NOT, tmp_path, stub, cupti=library_of(release))
        assert (done.code, done.errors, done.looked_up) == (0, "", set())
        assert all(reason.startswith("no NVIDIA driver (libcuda.so.1") for reason in done.said)


class TestOnADriver:
    @pytest.mark.parametrize("release", ON_THE_DOUBLE)
    def test_the_version_decides(self, release, tmp_path):
        done = ran(LOADED + WHY_NOT, tmp_path, gpu_doubles(), cupti=library_of(release))
        assert (done.code, done.errors) == (0, "")
        assert "cuptiGetVersion" in done.looked_up  # so a look-up would have been seen above, too
        hangs = "CUPTI API 130000 (CUDA 13.0 without Update 1) can hang the process"
        assert done.said == ["", hangs if release == "13.0-ga" else ""]

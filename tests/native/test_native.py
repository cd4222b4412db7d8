"""The C++ unit tests, under the address and undefined-behaviour sanitizers, and under the thread sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.build import SOURCE, built

SANITIZERS = ("address,undefined", "thread")
# API numbers with records of different sizes: CUDA 12.4, 12.8, 12.9, 13.0 Update 1, 13.1, 13.3, 13.4.
CUPTI_VERSIONS = ("22", "26", "28", "130001", "130101", "130301", "130401")
OF_CUPTI = "gpu_cupti_test"


def programs():
    for sanitizer in SANITIZERS:
        for source in sorted(SOURCE.glob("*_test.cpp")):
            if sanitizer == "thread" and "#include <thread>" not in source.read_text():
                continue
            for version in CUPTI_VERSIONS if source.stem == OF_CUPTI else ("",):
                name = f"{source.stem}-{sanitizer}" + f"-cupti{version}" * bool(version)
                yield pytest.param(sanitizer, source.stem, version, id=name)


def run(program: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(program)]
    # Many bits of address randomisation are more than the thread sanitizer of older compilers can place.
    fixed = ["setarch", "--addr-no-randomize"]
    if shutil.which("setarch") and not subprocess.run([*fixed, "true"], check=False).returncode:
        command = [*fixed, *command]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, env={**os.environ, **env}
    )


@pytest.mark.timeout(600)  # the first one builds
@pytest.mark.parametrize(("sanitizer", "name", "cupti_version"), list(programs()))
def test_cpp(sanitizer, name, cupti_version):
    done = run(
        built(sanitizer) / name, {"DOUBLE_CUPTI_VERSION": cupti_version} if cupti_version else {}
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

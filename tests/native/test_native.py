"""The C++ unit tests, under the address and undefined-behaviour sanitizers, and under the thread sanitizer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.build import SOURCE, built

SANITIZERS = ("address,undefined", "thread")
PROGRAMS = [
    pytest.param(sanitizer, source.stem, id=f"{source.stem}-{sanitizer}")
    for sanitizer in SANITIZERS
    for source in sorted(SOURCE.glob("*_test.cpp"))
    if sanitizer != "thread" or "#include <thread>" in source.read_text()
]


def run(program: Path) -> subprocess.CompletedProcess[str]:
    command = [str(program)]
    # Many bits of address randomisation are more than the thread sanitizer of older compilers can place.
    fixed = ["setarch", "--addr-no-randomize"]
    if shutil.which("setarch") and not subprocess.run([*fixed, "true"], check=False).returncode:
        command = [*fixed, *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.timeout(600)  # the first one builds
@pytest.mark.parametrize(("sanitizer", "name"), PROGRAMS)
def test_cpp(sanitizer, name):
    done = run(built(sanitizer) / name)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

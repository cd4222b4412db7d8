"""Builds the C++ test programs once a session, each sanitizer in its own folder under build/."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent
ROOT = SOURCE.parents[1]
DOCTEST = ("/usr/include/doctest/doctest.h", "/usr/local/include/doctest/doctest.h")


def missing() -> str:
    """Empty where everything is there, else what is not and how to get it."""
    lacking = [tool for tool in ("cmake", "make", "g++") if shutil.which(tool) is None]
    if not any(Path(header).exists() for header in DOCTEST):
        lacking.append("doctest-dev")
    return f"needs apt-get install {' '.join(lacking)}" if lacking else ""


@functools.cache
def built(sanitizer: str, target: str = "all") -> Path:
    """The folder of the programs; skips the test where the tools lack, fails it where the build does."""
    if why := missing():
        pytest.skip(why)
    folder = ROOT / "build" / f"native-{sanitizer.replace(',', '-') or 'plain'}"
    for command in (
        [
            "cmake",
            "-S",
            str(SOURCE),
            "-B",
            str(folder),
            "-G",
            "Unix Makefiles",
            f"-DSANITIZE={sanitizer}",
        ],
        [
            "cmake",
            "--build",
            str(folder),
            "--parallel",
            str(os.cpu_count() or 1),
            "--target",
            target,
        ],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder


def gpu_doubles() -> Path:
    """The folder of the doubles of libcuda and libcupti, for LD_LIBRARY_PATH."""
    for target in ("cuda_double", "cupti_double"):
        folder = built("", target)
    return folder / "doubles"

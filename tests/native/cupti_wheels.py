"""NVIDIA's own CUPTI from its wheels, below build/: headers, libcupti and its planner to hold ours against."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.native.build import ROOT

CACHE = ROOT / "build" / "cupti-wheels"
# CUPTI's wheel, and the one of the same CUDA release that brings cuda.h. All are pinned: what was tested stays what it
# is, and a new release is a new line here.
RELEASES = {
    "12.4": ("nvidia-cuda-cupti-cu12==12.4.127", "nvidia-cuda-runtime-cu12==12.4.127"),
    "12.6": ("nvidia-cuda-cupti-cu12==12.6.80", "nvidia-cuda-runtime-cu12==12.6.77"),
    "12.8": ("nvidia-cuda-cupti-cu12==12.8.90", "nvidia-cuda-runtime-cu12==12.8.90"),
    "12.9": ("nvidia-cuda-cupti-cu12==12.9.79", "nvidia-cuda-runtime-cu12==12.9.79"),
    "13.0-ga": ("nvidia-cuda-cupti==13.0.48", "nvidia-cuda-runtime==13.0.48"),
    "13.0": ("nvidia-cuda-cupti==13.0.85", "nvidia-cuda-runtime==13.0.88"),
    "13.1": ("nvidia-cuda-cupti==13.1.115", "nvidia-cuda-runtime==13.1.80"),
    "13.2": ("nvidia-cuda-cupti==13.2.86", "nvidia-cuda-runtime==13.2.86"),
    "13.3": ("nvidia-cuda-cupti==13.3.75", "nvidia-cuda-runtime==13.3.29"),
    "13.4": ("nvidia-cuda-cupti==13.4.92", "nvidia-cuda-runtime==13.4.92"),
    "13.5": ("nvidia-cuda-cupti==13.5.25", "nvidia-cuda-runtime==13.5.37"),
}
_PIP = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-input"]
_PIP += ["--no-deps", "--only-binary", ":all:", "--retries", "1", "--timeout", "15"]
_failures: list[
    str
] = []  # after two, nothing is tried any more: a machine without network says so soon


def headers_of(release: str) -> Path:
    return _folder_of(release) / "include"


def library_of(release: str) -> Path:
    return next((_folder_of(release) / "lib").glob("libcupti.so.1?"))


def _folder_of(release: str) -> Path:
    """Downloads about 12 MB the first time; skips the test where they cannot be had."""
    folder = CACHE / release
    if not folder.exists():
        if len(_failures) >= 2:
            pytest.skip(_failures[-1])
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            _download(release, Path(name))
            _unpack(Path(name), Path(name) / "done")
            with suppress(OSError):  # another run of the tests was quicker
                (Path(name) / "done").rename(folder)
    return folder


def _download(release: str, to: Path) -> None:
    command = [*_PIP, "-d", str(to), *RELEASES[release]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        why = done.returncode and ["pip failed", *done.stderr.strip().splitlines()][-1]
    except subprocess.TimeoutExpired as error:
        why = str(error)
    if why:
        _failures.append(f"{RELEASES[release][0]} cannot be had: {why}")
        pytest.skip(_failures[-1])


def _unpack(wheels: Path, to: Path) -> None:
    (to / "include").mkdir(parents=True)
    (to / "lib").mkdir()
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as files:
            for path in files.namelist():
                folder, _, name = path.rpartition("/")
                is_header = folder.endswith("/include") and name.endswith(".h")
                is_of_use = name == "cuda.h" or "cupti" in wheel.name
                is_library = name.startswith(("libcupti.so.1", "libnvperf_host.so"))
                if (is_header and is_of_use) or is_library:
                    part = "include" if is_header else "lib"
                    with files.open(path) as packed, (to / part / name).open("wb") as file:
                        shutil.copyfileobj(packed, file)

"""The own ABI prefixes of csrc/gpu against NVIDIA's headers, which come from its wheels: none is in this project."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.native.build import ROOT, SOURCE

CACHE = ROOT / "build" / "abi"
# CUPTI's wheel, and the one of the same release that brings cuda.h: one for each size of a record, and the newest.
WHEELS = {
    "12.4": ("nvidia-cuda-cupti-cu12==12.4.127", "nvidia-cuda-runtime-cu12==12.4.127"),
    "12.6": ("nvidia-cuda-cupti-cu12==12.6.80", "nvidia-cuda-runtime-cu12==12.6.77"),
    "12.8": ("nvidia-cuda-cupti-cu12==12.8.90", "nvidia-cuda-runtime-cu12==12.8.90"),
    "12.9": ("nvidia-cuda-cupti-cu12==12.9.79", "nvidia-cuda-runtime-cu12==12.9.79"),
    "13.0": ("nvidia-cuda-cupti==13.0.85", "nvidia-cuda-runtime==13.0.88"),
    "13.1": ("nvidia-cuda-cupti==13.1.115", "nvidia-cuda-runtime==13.1.80"),
    "13.3": ("nvidia-cuda-cupti==13.3.75", "nvidia-cuda-runtime==13.3.29"),
    "newest": ("nvidia-cuda-cupti", "nvidia-cuda-runtime"),
}


def headers_of(release: str) -> Path:
    """A folder with the headers of that release; skips where its wheels cannot be had."""
    folder = CACHE / release
    if (folder / "cupti_activity.h").exists() and (folder / "cuda.h").exists():
        return folder
    for wheel in WHEELS[release]:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-input"]
        command += [
            "--retries",
            "1",
            "--timeout",
            "15",
            "--only-binary",
            ":all:",
            "-d",
            str(folder),
            wheel,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
            pytest.skip(f"{wheel} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
    for archive in folder.glob("*.whl"):
        with zipfile.ZipFile(archive) as files:
            for name in files.namelist():
                _, included, path = name.partition("/include/")
                if included and name.endswith((".h", ".hpp")):
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_bytes(files.read(name))
        archive.unlink()
    return folder


def compiled(headers: Path, csrc: Path = ROOT / "csrc") -> subprocess.CompletedProcess[str]:
    # cupti_activity.h asks for the runtime's vector types and uses none; they would want yet another wheel.
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "builtin_types.h").touch()
    command = [
        "g++",
        "-std=c++17",
        "-fsyntax-only",
        f"-I{CACHE}",
        f"-isystem{headers}",
        f"-I{csrc}",
    ]
    return subprocess.run(
        [*command, SOURCE / "abi.cpp"], capture_output=True, text=True, timeout=120, check=False
    )


pytestmark = [
    pytest.mark.timeout(600),  # the first time it downloads about 15 MB a release
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"),
]


@pytest.mark.parametrize("release", WHEELS)
def test_prefixes_agree_with_the_headers_of(release):
    done = compiled(headers_of(release))
    assert done.returncode == 0, done.stderr[-3000:]


def test_prefixes_agree_with_the_toolkit_of_this_machine():
    toolkits = [path.parent for path in Path("/usr/local").glob("cuda*/include/cupti_activity.h")]
    if not toolkits:
        pytest.skip("no CUDA toolkit here; none is needed")
    done = compiled(toolkits[0])
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("header", "right", "wrong", "named"),
    [
        ("cupti_abi.h", "kConcurrentKernel = 10", "kConcurrentKernel = 11", "CONCURRENT_KERNEL"),
        ("cupti_abi.h", "uint64_t graph_node;  ", "uint32_t graph_node, x;", "Kernel.graph_node"),
        (
            "cupti_abi.h",
            "cuptiActivityEnable, (uint32_t)",
            "cuptiActivityEnable, (void*)",
            "cuptiActivityEnable",
        ),
        ("cuda_abi.h", "kNotReady = 600", "kNotReady = 601", "CUDA_ERROR_NOT_READY"),
        ("cuda_abi.h", "cuEventQuery, (Event)", "cuEventQuery, (Event, int)", "cuEventQuery"),
    ],
)
def test_a_wrong_prefix_does_not_compile(tmp_path, header, right, wrong, named):
    headers = headers_of("13.0")
    shutil.copytree(ROOT / "csrc" / "gpu", tmp_path / "gpu")
    text = (tmp_path / "gpu" / header).read_text()
    assert right in text
    (tmp_path / "gpu" / header).write_text(text.replace(right, wrong))
    done = compiled(headers, tmp_path)
    assert done.returncode != 0
    assert named in done.stderr

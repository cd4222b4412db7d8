"""Which GPU, driver, torch, CUDA and CUPTI the figures are of.

python -m bench.gpu.environment
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from bench.gpu import part

PARAMS = Path("/proc/driver/nvidia/params")


def measure(machine: part.Machine, _: argparse.Namespace) -> dict[str, Any]:
    torch = machine.torch
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return {
        "gpu": torch.cuda.get_device_name(0),
        "gpus": torch.cuda.device_count(),
        "gpu_memory_gib": round(total_bytes / 2**30, 1),
        "gpu_memory_free_gib": round(free_bytes / 2**30, 1),
        "driver": driver_version(),
        "driver_cuda": driver_cuda(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        **cupti_versions(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "uid": os.getuid(),
        "profiling_admin_only": admin_only(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def driver_version() -> str | None:
    """As nvidia-smi tells it; its library may lie where only the loader finds it."""
    try:
        line = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return line.split("\n", 1)[0].strip() or None


def driver_cuda() -> int | None:
    """The newest CUDA that the driver knows: 13000 for 13.0."""
    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return None
    except OSError:
        return None
    return version.value


def cupti_versions() -> dict[str, Any]:
    """Of the library that torch has loaded; asked only where there is a driver (csrc/gpu/library.h says why)."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    files = sorted({line.split()[-1] for line in maps if "libcupti" in line})
    for name in ("libcupti.so.13", "libcupti.so.12"):
        try:
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:
            continue
        version = ctypes.c_uint32()
        answer = library.cuptiGetVersion(ctypes.byref(version))
        return {
            "cupti": version.value if answer == 0 else None,
            "cupti_file": files[0] if files else name,
        }
    return {"cupti": None, "cupti_file": files[0] if files else None}


def admin_only() -> str | None:
    """RmProfilingAdminOnly of the driver: 1 keeps counters (not activity records) from other users."""
    if not PARAMS.exists():
        return None
    lines = [
        line for line in PARAMS.read_text(encoding="utf-8").splitlines() if "AdminOnly" in line
    ]
    return lines[0].split(":")[-1].strip() if lines else None


if __name__ == "__main__":
    part.main(__doc__, measure)

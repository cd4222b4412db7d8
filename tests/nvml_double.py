"""The double of libnvidia-ml.so.1, built once a session; its node is a dict (csrc/doubles/nvml/node_state.h)."""

from __future__ import annotations

import copy
import fcntl
import functools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "csrc" / "doubles" / "nvml"
NAME = "libnvidia-ml.so.1"
STATE = "PYMON_NVML_DOUBLE"
GIB = 1024**3


@functools.cache
def library() -> Path:
    """The built library; skips the test where no compiler is. Two sessions may build at once."""
    if shutil.which("g++") is None:
        pytest.skip("needs apt-get install g++")
    folder = ROOT / "build" / "nvml-double"
    folder.mkdir(parents=True, exist_ok=True)
    path, sources = folder / NAME, sorted(SOURCES.glob("*.cpp"))
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        newest_s = max(file.stat().st_mtime for file in SOURCES.iterdir())
        if not path.exists() or path.stat().st_mtime < newest_s:
            half = folder / "half"
            command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
            command += ["-fPIC", "-shared", "-fvisibility=hidden", f"-I{ROOT / 'csrc'}"]
            command += [f"-Wl,-soname,{NAME}", "-o", str(half), *map(str, sources)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-4000:]
            half.rename(path)
    return path


def without(folder: Path, *symbols: str) -> Path:
    """A copy of the library that lacks these symbols, as an old driver's does; in a folder for LD_LIBRARY_PATH."""
    code = library().read_bytes()
    for symbol in symbols:
        assert code.count(b"\0" + symbol.encode() + b"\0") >= 1, symbol
        code = code.replace(b"\0" + symbol.encode() + b"\0", b"\0X" + symbol[1:].encode() + b"\0")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(code)
    return folder / NAME


def uuid_of(index: int) -> str:
    return f"GPU-00000000-0000-4000-8000-0000000000{index:02x}"


def gpu(index: int = 0) -> dict:
    """An H200 that trains; no two of its readings are alike, so that one read for another is seen."""
    fields = {
        # limits and draw, mW; energy, mJ
        "185": 612_000 + index, "186": 655_500 + index, "187": 200_000, "188": 700_000, "189": 699_000, "190": 650_000,
        "83": {"start": 7_000_000 + index, "per_s": 655_500},
        # time with a reason to clock down, ns
        "74": 5_000_000_000, "75": 1_500_000_000, "76": 0, "77": 250_000_000, "78": 0, "79": 125_000_000,
        "269": 1_500_000_000, "270": 500_000_000, "271": 750_000_000,
        "82": 71,  # memory temperature
        # PCIe: replays, bytes out and in
        "94": 3, "197": {"start": 1_000, "per_s": 1_200_000}, "198": {"start": 2_000, "per_s": 3_400_000},
        # NVLink: links, KiB out and in of all links, CRC flit, CRC data, replay, recovery errors
        "91": 18, "138": {"start": 500, "per_s": 9_000_000}, "139": {"start": 700, "per_s": 8_000_000},
        "38": 11, "45": 2, "52": 1, "59": 4,
        # row remapping: corrected, uncorrected, pending, failure; recovery action
        "142": 6, "143": 1, "144": 0, "145": 0, "230": 0,
    }  # fmt: skip
    for link in range(18):
        fields |= {
            f"138/{link}": {"per_s": 500_000 + link},
            f"139/{link}": {"per_s": 440_000 + link},
        }
        fields |= {f"161/{link}": link, f"162/{link}": 100 + link, f"163/{link}": 200 + link}
    return {
        "uuid": uuid_of(index),
        "name": "NVIDIA H200",
        "serial": f"16513240000{index:02d}",
        "pci_bus_id": f"00000000:{0x18 + index:02X}:00.0",
        "compute_capability": [9, 0],
        "architecture": 9,
        "persistence_mode": 1,
        "memory": {
            "total": 141 * GIB,
            "reserved": 600 * 1024**2,
            "used": (90 + index) * GIB,
            "free": 141 * GIB - 600 * 1024**2 - (90 + index) * GIB,
        },
        "bar1": {"total": 256 * GIB, "used": GIB, "free": 255 * GIB},
        "utilization": [97, 41],
        "encoder": 0,
        "decoder": 5,
        "power_mw": 612_000 + index,
        "power_limit_mw": 650_000,
        "power_default_mw": 699_000,
        "power_constraints_mw": [200_000, 700_000],
        "clocks_mhz": {"0": 1980, "1": 1965, "2": 3201, "3": 1545},
        "max_clocks_mhz": {"0": 1985, "1": 1981, "2": 3202, "3": 1546},
        "performance_state": 0,
        "event_reasons": 0x4,
        "temperatures": {"0": 63},
        "temperature_thresholds": {"0": 92, "1": 89, "2": 95, "3": 87},
        "temperature_margin": 24,
        "fields": fields,
        "pcie_kib_s": {"0": 1171, "1": 3320},
        "pcie_generation": 5,
        "pcie_width": 16,
        "ecc_mode": [1, 1],
        # severity (0 corrected) / counter (0 volatile, 1 aggregate) / location (2 device memory, 7 SRAM)
        "ecc": {
            "0/0": 12, "0/1": 120, "1/0": 2, "1/1": 21, "0/0/2": 5, "0/0/7": 7, "0/1/2": 50, "0/1/7": 70,
            "1/0/2": 1, "1/0/7": 1, "1/1/2": 10, "1/1/7": 11,
        },
        "fabric": {"state": 3, "status": 0, "clique": 1, "health": 0},
        "mig": {"mode": 0, "instances": []},
        "event_types": 0x1F,
        "gpm": {
            "1": 96.5, "2": 91.25, "3": 42.5, "5": 55.75, "7": 54.0, "10": 33.125, "11": 0.5, "12": 8.25, "13": 2.0,
            "20": 1.25, "21": 3.5, "60": 7.0, "61": 9.0,
        },
        "processes": [{"pid": 4000 + index, "bytes": (89 + index) * GIB}],
        "graphics_processes": [],
        "mps_processes": [],
        "process_utilization": [{"pid": 4000 + index, "sm": 95, "memory": 40}],
    }  # fmt: skip


def mig_instance(number: int, parent: int = 0) -> dict:
    """A 1g.18gb instance of an H200."""
    return {
        "uuid": f"MIG-00000000-0000-4000-8000-00000000{parent:02x}{number:02x}",
        "name": "NVIDIA H200 MIG 1g.18gb",
        "gpu_instance_id": 7 + number,
        "compute_instance_id": 0,
        "memory": {
            "total": 16 * GIB,
            "reserved": 1024**2,
            "used": (1 + number) * GIB,
            "free": 16 * GIB - 1024**2 - (1 + number) * GIB,
        },
        "attributes": {
            "gpu_slices": 1,
            "compute_slices": 1,
            "multiprocessors": 16,
            "memory_mib": 16384,
        },
        "gpm": {
            "1": 50.0 + number,
            "2": 40.0 + number,
            "3": 20.0,
            "5": 10.0,
            "10": 30.0,
            "11": 0.0,
            "12": 4.0,
            "13": 1.0,
        },
    }


def mig_gpu(index: int = 0, instances: int = 7) -> dict:
    """A GPU cut into instances: the driver answers no utilisation for it."""
    whole = gpu(index)
    del whole["utilization"]
    whole["mig"] = {"mode": 1, "instances": [mig_instance(n, index) for n in range(instances)]}
    return whole


def standard_node(count: int = 2) -> dict:
    """A healthy node of so many GPUs."""
    return {
        "driver_version": "580.126.09",
        "nvml_version": "13.580.126.09",
        "cuda_version": 13000,
        "process_stride": 24,
        "gpus": [gpu(index) for index in range(count)],
        "faults": [],
        "events": [],
    }


class NodeDouble:
    """A node in a file; `change` edits a copy of it, and the double knows when it returns."""

    def __init__(self, folder: Path, state: dict | None = None):
        self.path = folder / "node.json"
        self.state = state if state is not None else standard_node()
        self.library = library()
        self.write()

    def write(self) -> None:
        half = self.path.with_suffix(".half")
        half.write_text(json.dumps(self.state, ensure_ascii=True))
        half.rename(self.path)
        time.sleep(0.01)  # the double looks at it each 5 ms

    def change(self, edit) -> None:
        state = copy.deepcopy(self.state)
        edit(state)
        self.state = state
        self.write()

    def fail(self, function: str, code: int = 0, gpu: int | None = None, **more) -> None:
        """From now on this call answers so; `hang=True` never returns."""
        fault = {"function": function, "code": code, "gpu": gpu, **more}
        self.change(lambda state: state["faults"].append(fault))

    def mend(self) -> None:
        self.change(lambda state: state["faults"].clear())

    @property
    def env(self) -> dict[str, str]:
        """The environment of a process that shall find the double as it would find the driver's library."""
        return {**os.environ, STATE: str(self.path), "LD_LIBRARY_PATH": str(self.library.parent)}

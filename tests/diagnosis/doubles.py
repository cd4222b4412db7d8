"""Small traces made in the tests, the way Kineto writes them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pymon.native import tools

needs_native = pytest.mark.skipif(
    tools()[0] is None or not hasattr(tools()[0], "TraceReader"),
    reason="pymon.native._tools is not built",
)

SHARED = Path(os.environ.get("PYMON_SHARED", Path(__file__).parents[3] / "shared"))
REAL = SHARED / "traces"
needs_real_traces = pytest.mark.skipif(
    not REAL.is_dir(), reason=f"no real traces at {REAL} (set PYMON_SHARED)"
)

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def event(
    name: str, cat: str, ts: float, dur: float, tid: int | str = 7, **args: Any
) -> dict[str, Any]:
    """One complete event; microseconds, as in the file."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 7,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return event(f"ProfilerStep#{number}", "user_annotation", ts, dur)


def launch(correlation: int, ts: float, dur: float = 5) -> dict[str, Any]:
    return event("cudaLaunchKernel", "cuda_runtime", ts, dur, correlation=correlation)


def kernel(correlation: int, ts: float, dur: float, name: str = "gemm") -> dict[str, Any]:
    return event(name, "kernel", ts, dur, "stream 7", correlation=correlation, stream=7, device=0)


def text(events: list[dict[str, Any]], **root: Any) -> bytes:
    return json.dumps({**root, "traceEvents": events}, indent=1).encode()


def write(path: Path, events: list[dict[str, Any]], **root: Any) -> Path:
    data = text(events, **root)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def loader_bound_gpu(cat: str = "user_annotation", name: str = LOADER) -> list[dict[str, Any]]:
    """Three steps of 1,000 µs: 400 in the loader while the GPU idles, then 500 of one kernel."""
    events = []
    for n in range(3):
        ts = 1000.0 * n + 1000
        events += [
            step(n, ts, 1000),
            event(name, cat, ts, 400),
            event("aten::mm", "cpu_op", ts + 420, 50),
            launch(n + 1, ts + 430),
            kernel(n + 1, ts + 440, 500),
        ]
    return events


def scalar_reads_cpu(reads: int = 50, stacks: bool = False) -> list[dict[str, Any]]:
    """Two steps of 1,000 µs, each with so many reads of 4 µs."""
    events = []
    for n in range(2):
        ts = 1000.0 * n + 1000
        events += [step(n, ts, 1000), event("aten::mm", "cpu_op", ts + 1, 100)]
        if stacks:
            events.append(event("train.py(12): accuracy", "python_function", ts + 150, 800))
        for i in range(reads):
            at = ts + 200 + 10 * i
            events += [
                event("aten::item", "cpu_op", at, 4),
                event("aten::_local_scalar_dense", "cpu_op", at + 1, 2),
            ]
    return events


def item_waits_gpu() -> list[dict[str, Any]]:
    """Three steps of 1,000 µs: the host waits in .item() for 500, then the GPU idles for 300."""
    events = []
    for n in range(3):
        ts, c = 1000.0 * n + 1000, 10 * n
        events += [
            step(n, ts, 1000),
            launch(c + 1, ts + 300),
            kernel(c + 1, ts + 310, 600),
            event("aten::item", "cpu_op", ts + 400, 520),
            event("cudaMemcpyAsync", "cuda_runtime", ts + 405, 510, correlation=c + 2),
            event(
                "Memcpy DtoH (Device -> Pageable)",
                "gpu_memcpy",
                ts + 911,
                2,
                "stream 7",
                correlation=c + 2,
                stream=7,
                device=0,
                bytes=4,
            ),
        ]
    return events

"""GPU work by class as a trace of torch.profiler's tells it, in the classes of csrc/gpu."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

_COPIES = {
    "HtoD": "copy_host_to_device",
    "DtoH": "copy_device_to_host",
    "DtoD": "copy_device_to_device",
    "PtoP": "copy_peer",
}


def sums_of_trace(path: Path, kernel_class: Callable[[str], str]) -> dict[str, tuple[int, int]]:
    """Class -> (count, nanoseconds). Ranges of the user's, which Kineto shows on the GPU too, are left out."""
    sums: dict[str, tuple[int, int]] = {}
    for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"]:
        name = class_of(event.get("cat", ""), event.get("name", ""), kernel_class)
        if event.get("ph") == "X" and name:
            count, ns = sums.get(name, (0, 0))
            sums[name] = (count + 1, ns + round(event["dur"] * 1000))
    return sums


def class_of(category: str, name: str, kernel_class: Callable[[str], str]) -> str:
    """Empty for what is no GPU work."""
    if category == "kernel":
        return kernel_class(name)
    if category == "gpu_memset":
        return "set"
    if category != "gpu_memcpy":
        return ""
    return next((known for part, known in _COPIES.items() if part in name), "copy_other")


def furthest(
    ours: dict[str, tuple[int, int]], theirs: dict[str, tuple[int, int]]
) -> tuple[str, float]:
    """The class whose times differ most, and that difference as a share of all GPU time."""
    whole_ns = sum(ns for _, ns in theirs.values()) or 1
    apart = {
        name: abs(ours.get(name, (0, 0))[1] - theirs.get(name, (0, 0))[1]) / whole_ns
        for name in {*ours, *theirs}
    }
    worst = max(apart, key=lambda name: apart[name], default="")
    return worst, apart.get(worst, 0.0)

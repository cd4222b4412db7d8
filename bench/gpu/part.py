"""What all measurements of `bench/gpu` share: the machine, pymon's layers in this process, one line of JSON.

A measurement is a module with `measure(machine, arguments) -> {key: figure}`; it runs in a process of its own, whose
last line on stdout is the figures. PYMON_GPU_CHECK_DOUBLE names a module that puts a double in the place of the GPU
(the dry run of the tests); without it only a real one will do.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("PYMON_SOCKET", "/nonexistent/agent.sock")  # the probe alone, no daemon
DOUBLE = "PYMON_GPU_CHECK_DOUBLE"
FLUSHED_S = 1.2  # two of the layer's flushes and a publication (csrc/gpu/cupti_layer.h: flush_ns)


class NotPossible(Exception):
    """This measurement cannot be made here; the text says why."""


@dataclass(frozen=True)
class Machine:
    """`device` is what tensors live on; `is_double` makes every size small, since nothing is measured then."""

    torch: Any
    device: str
    is_double: bool


def machine() -> Machine:
    """The GPU of this process, or its double; raises NotPossible."""
    import torch

    if name := os.environ.get(DOUBLE):
        return Machine(torch, importlib.import_module(name).install(), True)
    if not torch.cuda.is_available():
        raise NotPossible(f"torch.cuda.is_available() is False (torch {torch.__version__})")
    torch.cuda.init()
    return Machine(torch, "cuda", False)


def main(
    doc: str | None,
    measure: Callable[[Machine, argparse.Namespace], dict[str, Any]],
    *options: tuple[str, dict[str, Any]],
) -> None:
    """Runs one measurement and ends the process at once: no exit handler may hide or spoil its figures."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="aim, without the start-up")
    for name, details in options:
        parser.add_argument(name, **details)
    arguments = parser.parse_args()
    code = 0
    try:
        said = measure(machine(), arguments)
    except NotPossible as err:
        said, code = {"skipped": str(err)}, 3
    print("\n" + json.dumps(said), flush=True)
    sys.stderr.flush()
    os._exit(code)


def attached(machine: Machine, layers: str = "events,cupti") -> Any:
    """The native module, once these layers run in this process; raises NotPossible with the layer's own reason."""
    os.environ["PYMON_GPU_LAYERS"] = layers
    import pymon
    from pymon.probe import attach

    torch = machine.torch
    if not pymon.attach():
        raise NotPossible("pymon did not attach (its line on stderr says why)")
    weight = torch.ones(4, 4, device=machine.device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    native = attach.native()
    wanted = {"cupti" if name == "sync" else name for name in layers.split(",") if name != "none"}
    until = time.monotonic() + 15.0
    while True:
        (weight @ weight).sum().backward()  # the probe's first activity opens the page
        optimizer.step()
        states = native.gpu_layers()
        if all(states[name][0] == "running" for name in wanted):
            return native
        if time.monotonic() > until:
            raise NotPossible(f"the layers did not come up: {states}")
        time.sleep(0.1)


def page() -> Any:
    """A reader of this process's own page."""
    from pymon.link.page import PageReader

    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:pymon-page"):
                return PageReader.open(int(name))
        except OSError:
            continue
    raise NotPossible("this process has no page")


def settled(reader: Any, timeout_s: float = 20.0) -> Any:
    """The CUPTI section, once all that the GPU has done is in it: no more records come."""
    until, last, since = time.monotonic() + timeout_s, -1, time.monotonic()
    while True:
        sample = reader.cupti()
        if sample is not None and sample.records_total != last:
            last, since = sample.records_total, time.monotonic()
        if sample is not None and time.monotonic() - since >= FLUSHED_S:
            return sample
        if time.monotonic() > until:
            raise NotPossible("records keep coming, or the page has no quiet moment")
        time.sleep(0.05)


def work_since(before: Any, after: Any) -> dict[str, tuple[int, int]]:
    """Class of work -> (count, nanoseconds) between two CUPTI sections; classes without any are left out."""
    old = dict(before.work)
    since = {}
    for name, sums in after.work:
        count = sums.count - (old[name].count if name in old else 0)
        if count:
            since[name] = (count, sums.ns_total - (old[name].ns_total if name in old else 0))
    return since


def percentile(values: list[float], per_cent: float) -> float:
    """Nearest rank; of few values the high ones are their largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * per_cent / 100.0))]


def median_difference(ones: list[float], others: list[float]) -> float:
    """Of pairs that were measured right after one another."""
    return statistics.median(one - other for one, other in zip(ones, others, strict=True))

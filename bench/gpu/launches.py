"""What the CUPTI layer adds to a kernel launch: eager and launch-bound, eager and GPU-bound, and in CUDA graphs.

    python -m bench.gpu.launches [--seconds 40] [--layers cupti|cupti,sync]

One process; blocks with the layer running and with it yielded alternate at random, and each round has a second yielded
block: two identical baselines, whose difference is the noise. `host` is the time until the last launch call came back,
`total` until the GPU was done, both per kernel. What stays behind while the layer is yielded is not seen here
(bench/gpu/steps.py compares with processes that never had it).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.gpu import part

STATES = ("off", "off_again", "on")


def measure(machine: part.Machine, arguments: argparse.Namespace) -> dict[str, Any]:
    native = part.attached(machine, arguments.layers)
    suffix = "_" + arguments.layers.replace(",", "_")
    figures: dict[str, Any] = {}
    loads = workloads(machine)
    for name, (kernels, run) in loads.items():
        lease = Lease(native)
        times = interleaved(machine, run, lease, arguments.seconds / len(loads))
        for kind, by_state in times.items():
            per_kernel = {state: [ns / kernels for ns in by_state[state]] for state in STATES}
            key = f"launch_{name}_{kind}"
            figures[f"{key}_ns"] = statistics.median(per_kernel["off"])
            figures[f"{key}{suffix}_added_ns"] = part.median_difference(
                per_kernel["on"], per_kernel["off"]
            )
            figures[f"{key}{suffix}_noise_ns"] = abs(
                part.median_difference(per_kernel["off_again"], per_kernel["off"])
            )
        figures[f"launch_{name}{suffix}_rounds"] = len(times["host"]["on"])
    cupti = part.settled(part.page())
    figures[f"launch{suffix}_records"] = cupti.records_total
    figures[f"launch{suffix}_state"] = f"{cupti.state}: {cupti.reason}"
    figures[f"launch{suffix}_dropped"] = cupti.dropped_total
    if "sync" not in arguments.layers:
        return figures
    return {key: value for key, value in figures.items() if suffix in key}  # the baselines once


class Lease:
    """The layer on or off, by the door that profilers use."""

    def __init__(self, native: Any) -> None:
        self._native, self._is_on = native, True

    def switch(self, on: bool) -> None:
        """Returns once the layer's thread has done it."""
        if on == self._is_on:
            return
        self._is_on = on
        if not on:
            if not self._native.gpu_yield(2000):
                raise part.NotPossible("the layer did not yield within 2 s")
            return
        self._native.gpu_resume()
        until = time.monotonic() + 2.0
        while self._native.gpu_layers()["cupti"] != ("running", "running"):
            if time.monotonic() > until:
                raise part.NotPossible(f"no resume: {self._native.gpu_layers()['cupti']}")
            time.sleep(0.001)


def workloads(machine: part.Machine) -> dict[str, tuple[int, Callable[[], None]]]:
    """Name -> (kernels in one run, the run)."""
    torch, shrink = machine.torch, 50 if machine.is_double else 1
    tiny = torch.zeros(256, device=machine.device)
    large = torch.zeros(
        (1 << 26) // shrink**3, device=machine.device
    )  # 256 MiB: some 0.13 ms on an H200
    inside = 1000 // shrink

    def launch(tensor: Any, kernels: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(kernels):
                tensor.add_(1)

        return run

    graph = torch.cuda.CUDAGraph()
    launch(tiny, 3)()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        launch(tiny, inside)()

    def replay() -> None:
        for _ in range(5):
            graph.replay()

    return {
        "eager_tiny": (5000 // shrink, launch(tiny, 5000 // shrink)),
        "eager_large": (200 // shrink, launch(large, 200 // shrink)),
        "graph": (5 * inside, replay),
    }


def interleaved(
    machine: part.Machine, run: Callable[[], None], lease: Lease, seconds: float
) -> dict[str, dict[str, list[float]]]:
    """host/total -> state -> nanoseconds of each block, in the order of the rounds."""
    times: dict[str, dict[str, list[float]]] = {
        kind: {state: [] for state in STATES} for kind in ("host", "total")
    }
    synchronize = machine.torch.cuda.synchronize
    run()
    synchronize()
    until = time.monotonic() + seconds
    order = random.Random(1)
    while time.monotonic() < until or len(times["host"]["on"]) < 2:
        for state in order.sample(STATES, len(STATES)):
            lease.switch(state == "on")
            run()  # CUPTI asks for its buffers, the clocks rise
            synchronize()
            began_ns = time.perf_counter_ns()
            run()
            launched_ns = time.perf_counter_ns()
            synchronize()
            times["host"][state].append(launched_ns - began_ns)
            times["total"][state].append(time.perf_counter_ns() - began_ns)
    lease.switch(True)
    return times


if __name__ == "__main__":
    part.main(
        __doc__, measure, ("--layers", {"default": "cupti", "choices": ["cupti", "cupti,sync"]})
    )

"""Replays CUDA graphs for as long as time allows under the CUPTI layer: GPU memory, times of zero, processor time.

    python -m bench.gpu.replays [--seconds 1200] [--rate 50000] [--name replays]

Driver 580 with CUPTI 13.0 lost a gigabyte of GPU memory and gave times of zero after 25.1 million records of graphs
(parcagpu #23), and before 13.4 Update 1 CUPTI's own processor time grew without bound; the layer's guard
(csrc/gpu/self_guard.h) must see that before anybody else does. `--rate 0` replays as fast as the GPU can. Growth is
what the GPU lost since the first tenth of the time, less what torch reserved.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from bench.gpu import part

KERNELS = 500  # of a graph
LOOKS = 20  # at the page and the memory


def measure(machine: part.Machine, arguments: argparse.Namespace) -> dict[str, Any]:
    torch = machine.torch
    part.attached(machine)
    reader = part.page()
    kernels = 20 if machine.is_double else KERNELS
    graph, tensor = torch.cuda.CUDAGraph(), torch.zeros(256, device=machine.device)
    tensor.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(kernels):
            tensor.add_(1)
    began = time.monotonic()
    looks, replayed = [Look(machine, reader)], 0
    while time.monotonic() - began < arguments.seconds:
        graph.replay()
        replayed += 1
        if arguments.rate:
            due = began + replayed * kernels / arguments.rate
            time.sleep(max(0.0, due - time.monotonic()))
        elif replayed % 20 == 0:
            torch.cuda.synchronize()  # the host stays near the GPU
        if time.monotonic() - began > len(looks) * arguments.seconds / LOOKS:
            looks.append(Look(machine, reader))
    torch.cuda.synchronize()
    seconds = time.monotonic() - began
    cupti = part.settled(reader)
    looks.append(Look(machine, reader))
    first, last = looks[min(len(looks) - 2, LOOKS // 10)], looks[-1]
    launched = replayed * kernels
    return {
        f"{arguments.name}_{key}": value
        for key, value in {
            "seconds": seconds,
            "launched": launched,
            "per_s": launched / seconds,
            "records": cupti.graph_kernels_total,
            "lost_ratio": 1.0 - cupti.graph_kernels_total / max(1, launched),
            "gpu_growth_mib": (last.gpu_bytes - first.gpu_bytes) / 2**20,
            "gpu_taken_mib": (last.gpu_bytes - looks[0].gpu_bytes) / 2**20,
            "host_growth_mib": (last.host_bytes - first.host_bytes) / 2**20,
            "zero_times": cupti.zero_times_total,
            "bad_times": cupti.bad_times_total,
            "dropped": cupti.dropped_total,
            "buffers_refused": cupti.buffers_refused_total,
            "layer_host_mib": cupti.host_bytes / 2**20,
            "layer_gpu_mib": cupti.device_bytes / 2**20,
            "layer_core_ratio": last.cpu_share_since(first),
            "layer_core_ratio_early": first.cpu_share_since(looks[0]),
            "state": f"{cupti.state}: {cupti.reason}",
        }.items()
    }


class Look:
    """Memory and the layer's processor time at one moment."""

    def __init__(self, machine: part.Machine, reader: Any) -> None:
        free_bytes, total_bytes = machine.torch.cuda.mem_get_info()
        self.gpu_bytes = total_bytes - free_bytes - machine.torch.cuda.memory_reserved()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        self.host_bytes = pages * 4096
        sample = reader.cupti()
        self.cpu_ns = sample.own_cpu_ns_total if sample else 0
        self.at_ns = time.monotonic_ns()

    def cpu_share_since(self, earlier: Look) -> float:
        return (self.cpu_ns - earlier.cpu_ns) / max(1, self.at_ns - earlier.at_ns)


if __name__ == "__main__":
    part.main(
        __doc__,
        measure,
        ("--rate", {"type": float, "default": 50_000.0, "help": "kernels a second; 0: no bound"}),
        ("--name", {"default": "replays", "help": "of its keys"}),
    )

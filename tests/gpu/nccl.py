"""What the page says of NCCL's collectives while CUDA graphs are captured: one rank on one GPU."""

from __future__ import annotations

import time
from typing import Any

from bench.gpu import part

COUNT, FLOATS = 50, 1024
ASKED_S = 20.0


def nccl(machine: part.Machine) -> dict[str, Any]:
    """All-reduces of known size, half of them while the recorder is read and graphs are captured beside it."""
    import torch.distributed as dist

    part.attached(machine, "events")
    torch, reader = machine.torch, part.page()
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    values = torch.ones(FLOATS, device=machine.device)
    captured = 0
    for _ in range(COUNT):
        dist.all_reduce(values)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # one that a foreign query invalidates raises
            values * 2
        captured += 1
        time.sleep(0.05)  # several looks of the recorder lie within
    torch.cuda.synchronize()
    said = counted(reader)
    dist.destroy_process_group()
    return {**said, "captured": captured}


def counted(reader: Any) -> dict[str, Any]:
    """What the recorder's section says once it has all of them, or at the end of the patience."""
    until_s = time.monotonic() + ASKED_S
    while True:
        sample = reader.recorder()
        done = sample is not None and sample.records_total >= COUNT
        if done or time.monotonic() > until_s:
            break
        time.sleep(0.1)
    if sample is None:
        return {"reason": "no section", "ops": [], "groups": []}
    return {
        "reason": sample.reason,
        "reads": sample.reads_total,
        "read_cpu_ms": sample.read_cpu_ns_total / 1e6 / max(1, sample.reads_total),
        "ops": [(one.name, one.count_total, one.bytes_total) for one in sample.ops],
        "groups": [(one.backend, one.enqueued, one.completed) for one in sample.groups],
    }

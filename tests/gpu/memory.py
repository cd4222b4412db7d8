"""What the page says of torch's allocator beside what torch says itself, with a retry, pieces and an error planted."""

from __future__ import annotations

import time
from typing import Any

from bench.gpu import part

MIB = 1 << 20
ASKED_S = 20.0
# By pymon's names, those of torch.cuda.memory_stats.
THEIRS = {
    "allocated_bytes": "allocated_bytes.all.current",
    "reserved_bytes": "reserved_bytes.all.current",
    "active_bytes": "active_bytes.all.current",
    "inactive_split_bytes": "inactive_split_bytes.all.current",
    "requested_bytes": "requested_bytes.all.current",
    "allocated_peak_bytes": "allocated_bytes.all.peak",
    "reserved_peak_bytes": "reserved_bytes.all.peak",
    "segments": "segment.all.current",
    "alloc_retries_total": "num_alloc_retries",
    "ooms_total": "num_ooms",
    "device_allocs_total": "num_device_alloc",
    "device_frees_total": "num_device_free",
}


def memory(machine: part.Machine) -> dict[str, Any]:
    """Ours and torch's figures, before and after; they hold still meanwhile, so they must be the same."""
    part.attached(machine, "none")
    reader, torch = part.page(), machine.torch
    before = told(reader, torch)
    if machine.is_double:
        double = torch._C._cuda_memoryStats.__self__
        double.now[0].update(num_alloc_retries=1, num_ooms=1, inactive_split_bytes=5 * MIB)
        kept: Any = None
    else:
        kept = plant(torch)
    peak_bytes = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
    after = told(reader, torch)
    del kept
    look_us = look_cost_us(torch)
    return {"before": before, "after": after, "peak_before_looks": peak_bytes, "look_us": look_us}


def plant(torch: Any) -> list[Any]:
    """One cache flush, one out-of-memory error, and free pieces between blocks that stay."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved() + 300 * MIB
    torch.cuda.set_per_process_memory_fraction(limit / total)
    cached = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
    del cached  # 200 MiB in the cache: too little for the next one, which fits only without it
    torch.empty(250 * MIB, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(1024 * MIB, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        torch.cuda.set_per_process_memory_fraction(1.0)
    blocks = [torch.empty(5 * MIB, dtype=torch.uint8, device="cuda") for _ in range(40)]
    return blocks[::2]


def told(reader: Any, torch: Any) -> dict[str, Any]:
    """A read that began after now, and torch's own figures."""
    since_ns, until_s = time.monotonic_ns(), time.monotonic() + ASKED_S
    import pymon

    while time.monotonic() < until_s:
        pymon.step()
        allocators = reader.memory().allocators
        if allocators and allocators[0].read_mono_ns > since_ns:
            stats = torch.cuda.memory_stats()
            theirs = {ours: stats[name] for ours, name in THEIRS.items() if name in stats}
            return {"ours": allocators[0].values, "theirs": theirs, "uuid": allocators[0].uuid}
        time.sleep(0.01)
    raise part.NotPossible("the allocator was not read")


def look_cost_us(torch: Any) -> float:
    """One read of one device, the median of many."""
    from pymon.probe import attach
    from pymon.probe.allocator import Allocator

    warnings: list[str] = []
    watcher = Allocator(attach.native(), warnings.append)
    watcher.install(torch)
    took_us = []
    for _ in range(501):
        began_ns = time.perf_counter_ns()
        watcher.look()
        took_us.append((time.perf_counter_ns() - began_ns) / 1e3)
    if warnings:
        raise part.NotPossible(warnings[0])
    return part.percentile(took_us, 50)

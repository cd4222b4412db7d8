"""What CUDA events cost the training thread (record) and the poller (query, elapsed), and what a mark of pymon's does.

    python -m bench.gpu.events [--seconds 20]

Medians of rounds of 500 calls, by ctypes, less what the cheapest driver call costs that way (`event_floor_ns`). Beside
them torch.cuda.Event, as scripts use it, and the driver's part of a mark: `pymon.step` less that with the layer off.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.gpu import part

CALLS = 500
STEPS = 50  # of a round: beyond 1,000 marks a second the layer thins them out
DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
LONG_KERNEL_CYCLES = 400_000_000  # some 0.2 s at 2 GHz: long enough for the queries before its end


def measure(machine: part.Machine, arguments: argparse.Namespace) -> dict[str, Any]:
    torch = machine.torch
    native = part.attached(machine, "events")
    cuda = ctypes.CDLL("libcuda.so.1")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    timed, untimed, first = (new_event(cuda, flags) for flags in (0, DISABLE_TIMING, 0))
    version, elapsed_ms = ctypes.c_int(), ctypes.c_float()
    ours = torch.cuda.Event(enable_timing=True)
    check(cuda.cuEventRecord(first, stream))
    check(cuda.cuEventRecord(timed, stream))
    ours.record()
    torch.cuda.synchronize()
    calls: dict[str, Callable[[], Any]] = {
        "event_floor_ns": lambda: cuda.cuDriverGetVersion(ctypes.byref(version)),
        "event_record_ns": lambda: cuda.cuEventRecord(timed, stream),
        "event_record_untimed_ns": lambda: cuda.cuEventRecord(untimed, stream),
        "event_query_done_ns": lambda: cuda.cuEventQuery(first),
        "event_elapsed_ns": lambda: cuda.cuEventElapsedTime(ctypes.byref(elapsed_ms), first, timed),
        "torch_event_record_ns": ours.record,
        "torch_event_query_ns": ours.query,
        "step_marked_ns": native.step,
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    until = time.monotonic() + arguments.seconds * 0.7
    while time.monotonic() < until:
        for name, call in calls.items():
            found[name].append(round_ns(call, STEPS if name == "step_marked_ns" else CALLS))
            torch.cuda.synchronize()
        time.sleep(0.1)  # the poller empties the ring
    figures = {name: statistics.median(values) for name, values in found.items()}
    for name in [
        name for name in figures if name.startswith("event_") and name != "event_floor_ns"
    ]:
        figures[name] -= figures["event_floor_ns"]
    figures["event_query_pending_ns"] = (
        pending_ns(machine, cuda, timed, stream) - figures["event_floor_ns"]
    )
    native.gpu_stop("is being measured", 1000)
    figures["step_unmarked_ns"] = statistics.median(round_ns(native.step, STEPS) for _ in range(50))
    figures["mark_driver_ns"] = figures["step_marked_ns"] - figures["step_unmarked_ns"]
    return figures


def round_ns(call: Callable[[], Any], calls: int = CALLS) -> float:
    began_ns = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - began_ns) / calls


def pending_ns(machine: part.Machine, cuda: Any, event: Any, stream: Any) -> float:
    """A query of an event that has not happened."""
    machine.torch.cuda._sleep(LONG_KERNEL_CYCLES)
    check(cuda.cuEventRecord(event, stream))
    taken_ns = round_ns(lambda: cuda.cuEventQuery(event))
    machine.torch.cuda.synchronize()
    return taken_ns


def new_event(cuda: Any, flags: int) -> Any:
    event = ctypes.c_void_p()
    check(cuda.cuEventCreate(ctypes.byref(event), flags))
    return event


def check(result: int) -> None:
    if result != 0:
        raise part.NotPossible(f"the driver answers {result}")


if __name__ == "__main__":
    part.main(__doc__, measure)

"""What the tests of this folder watch, each in a process of its own: python -m tests.gpu.scenarios NAME

The last line on stdout is what it saw, as JSON. On the GPU, or on its double as bench/gpu/part.py says.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.gpu import part
from bench.gpu.models import MODELS
from tests.gpu.kineto_sums import furthest, sums_of_trace
from tests.gpu.memory import memory
from tests.gpu.nccl import nccl

Sums = dict[str, tuple[int, int]]
BLOCK = 20  # steps


def train(machine: part.Machine) -> dict[str, Any]:
    """A GPT trains; what the page says of its GPU."""
    native = part.attached(machine)
    step = MODELS["gpt"](machine)
    few(machine, step, 10)
    reader = part.page()
    before = part.settled(reader)
    old = reader.gpu()
    began_ns = time.monotonic_ns()
    few(machine, step, 60)
    wall_ns = time.monotonic_ns() - began_ns
    after, gpu = part.settled(reader), reader.gpu()
    steps = gpu.steps_timed_total - old.steps_timed_total
    return {
        "layers": native.gpu_layers(),
        "steps": steps,
        "step_ns": (gpu.step_ns_total - old.step_ns_total) / max(1, steps),
        "wall_ns": wall_ns / 60,
        "phase_ns": [
            new - was for new, was in zip(gpu.phase_ns_total, old.phase_ns_total, strict=True)
        ],
        "whole_ns": gpu.step_ns_total - old.step_ns_total,
        "stride": gpu.stride,
        "failed": gpu.failed_total,
        "dropped": gpu.dropped_total,
        "work": part.work_since(before, after),
        "busy_ns": after.busy_ns_total - before.busy_ns_total,
        "zero_times": after.zero_times_total,
        "bad_times": after.bad_times_total,
        "records_dropped": after.dropped_total,
    }


def agree(machine: part.Machine) -> dict[str, Any]:
    """The same steps by turns under torch.profiler and under our layer; medians over the turns."""
    native = part.attached(machine)
    names = work_classes()
    kernel_class = lambda name: names[native.gpu_kernel_class(name)]  # noqa: E731
    step = MODELS["gpt"](machine)
    few(machine, step, 30)
    reader = part.page()
    with machine_profile(machine):  # Kineto's first session sets things up
        few(machine, step, 2)
    ours: list[Sums] = []
    theirs: list[Sums] = []
    for _ in range(2 if machine.is_double else 6):
        with machine_profile(machine) as profile:
            few(machine, step, BLOCK)
        theirs.append(sums_of(profile, kernel_class))
        wait_for_running(native)
        few(machine, step, 3)  # the clocks, and CUPTI's first buffers
        before = part.settled(reader)
        few(machine, step, BLOCK)
        ours.append(part.work_since(before, part.settled(reader)))
    ours_usual, theirs_usual = usual(ours), usual(theirs)
    worst, apart = furthest(ours_usual, theirs_usual)
    return {
        "ours": ours_usual,
        "theirs": theirs_usual,
        "total_ratio": total(ours_usual)[1] / max(1, total(theirs_usual)[1]) - 1.0,
        "counts": [total(ours_usual)[0], total(theirs_usual)[0]],
        "worst_class": worst,
        "worst_ratio": apart,
        # How far two turns of one and the same tool lie apart: what no comparison can be finer than.
        "theirs_spread": spread([total(one)[1] for one in theirs]),
        "ours_spread": spread([total(one)[1] for one in ours]),
        "turns": len(ours),
    }


def handover(machine: part.Machine) -> dict[str, Any]:
    """Ten profiles in a row with our layer between them (four on the double)."""
    native = part.attached(machine)
    step = MODELS["gpt"](machine)
    few(machine, step, 10)
    reader = part.page()
    theirs, ours, waits_ms = [], [], []
    for _ in range(sessions(machine)):
        before = part.settled(reader)
        few(machine, step, 5)
        ours.append(total(part.work_since(before, part.settled(reader)))[0])
        machine.torch.cuda.synchronize()
        began_ns = time.perf_counter_ns()
        session = machine_profile(machine)
        session.__enter__()
        waits_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
        few(machine, step, 5)
        session.__exit__(None, None, None)
        theirs.append(total(sums_of(session, lambda name: "other"))[0])
        wait_for_running(native)
        few(machine, step, 1)
    cupti = part.settled(reader)
    return {
        "ours": ours,
        "theirs": theirs,
        "open_ms": statistics.median(waits_ms),
        "handovers": cupti.handovers_total,
        "stolen": cupti.stolen_total,
        "lost_buffers": cupti.buffers_lost_total,
        "dropped": cupti.dropped_total,
        "bad_times": cupti.bad_times_total,
        "zero_times": cupti.zero_times_total,
        "state": cupti.state,
    }


def profile_alone(machine: part.Machine) -> dict[str, Any]:
    """The profiles of `handover` in a process without pymon: what the profiler itself loses."""
    step = MODELS["gpt"](machine)
    few(machine, step, 10)
    theirs = []
    for _ in range(sessions(machine)):
        few(machine, step, 5)
        with machine_profile(machine) as session:
            few(machine, step, 5)
        theirs.append(total(sums_of(session, lambda name: "other"))[0])
        few(machine, step, 1)
    return {"theirs": theirs}


def capture(machine: part.Machine) -> dict[str, Any]:
    """Graphs are captured in global mode while marks wait to be queried, between steps that make more of them."""
    torch = machine.torch
    native = part.attached(machine)
    step = MODELS["gpt"](machine)
    captures, wrong = (5 if machine.is_double else 40), 0
    for _ in range(captures):
        few(machine, step, 1, synchronize=False)
        value = torch.zeros(256, device=machine.device)
        torch.cuda.synchronize()
        few(machine, step, 1, synchronize=False)  # its last marks are still to be asked for
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(50):
                value.add_(1)
                native.step()  # a mark on a stream that captures must be left out
            time.sleep(0.06)  # one poll of the event layer falls into it
        value.zero_()
        graph.replay()
        torch.cuda.synchronize()
        wrong += not machine.is_double and float(value[0]) != 50.0
    gpu = part.page().gpu()
    return {
        "captures": captures,
        "wrong": wrong,
        "skipped": gpu.skipped_total,
        "failed": gpu.failed_total,
        "layers": native.gpu_layers(),
    }


def workers(machine: part.Machine) -> dict[str, Any]:
    """DataLoader workers are forked while the layers run."""
    torch = machine.torch
    native = part.attached(machine)
    data = torch.utils.data.TensorDataset(torch.arange(256.0).reshape(64, 4))
    model = torch.nn.Linear(4, 1).to(machine.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batches, before = 0, part.settled(part.page())
    for _ in range(3):
        loader = torch.utils.data.DataLoader(
            data, batch_size=8, num_workers=4, multiprocessing_context="fork"
        )
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch.to(machine.device)).pow(2).mean().backward()
            optimizer.step()
            batches += 1
    after = part.settled(part.page())
    return {
        "batches": batches,
        "records": after.records_total - before.records_total,
        "layers": native.gpu_layers(),
        "children": children(),
    }


def leave_working(machine: part.Machine) -> dict[str, Any]:
    """The process ends while the GPU works and records are out."""
    part.attached(machine)
    step = MODELS["gpt"](machine)
    few(machine, step, 5, synchronize=False)
    machine.torch.cuda._sleep(1_000_000_000)
    return {}


def leave_profiling(machine: part.Machine) -> dict[str, Any]:
    """The process ends within a profile."""
    part.attached(machine)
    step = MODELS["gpt"](machine)
    machine_profile(machine).__enter__()
    few(machine, step, 3)
    return {}


def leave_by_exception(machine: part.Machine) -> dict[str, Any]:
    part.attached(machine)
    few(machine, MODELS["gpt"](machine), 3, synchronize=False)
    print("{}", flush=True)
    raise RuntimeError("planned")


def second_client(machine: part.Machine) -> dict[str, Any]:
    """Another CUPTI client registers its callbacks beside ours, as Kineto's daemon mode does without a word."""
    part.attached(machine)
    client = ctypes.CDLL(os.environ["PYMON_SECOND_CLIENT"])
    client.client_buffers_with_records.restype = ctypes.c_uint64
    cupti = next(filter(None, map(loaded, ("libcupti.so.13", "libcupti.so.12"))), None)
    if cupti is None:
        raise part.NotPossible("no libcupti in this process")
    step = MODELS["gpt"](machine)
    few(machine, step, 5)
    reader = part.page()
    before = part.settled(reader)
    address = [
        ctypes.cast(getattr(client, f"client_{name}"), ctypes.c_void_p)
        for name in ("requested", "completed")
    ]
    answer = cupti.cuptiActivityRegisterCallbacks(*address)
    text = ctypes.c_char_p()
    cupti.cuptiGetResultString(answer, ctypes.byref(text))
    # After 30 s without a record the layer takes CUPTI back (csrc/gpu/cupti_layer.cpp; on the double that is
    # tested there, with a shorter time).
    until = time.monotonic() + (1.0 if machine.is_double else 45.0)
    after = before
    while time.monotonic() < until and after.records_total == before.records_total:
        few(machine, step, 5)
        time.sleep(0.2)
        after = reader.cupti()
    return {
        "answer": answer,
        "answer_text": (text.value or b"").decode(),
        "our_records_since": after.records_total - before.records_total,
        "their_buffers": client.client_buffers_with_records(),
        "stolen": after.stolen_total,
        "state": after.state,
        "reason": after.reason,
    }


SCENARIOS: dict[str, Callable[[part.Machine], dict[str, Any]]] = {
    scenario.__name__: scenario
    for scenario in (
        train,
        agree,
        handover,
        profile_alone,
        capture,
        workers,
        leave_working,
        leave_profiling,
        leave_by_exception,
        second_client,
        memory,
        nccl,
    )
}
LEAVING = ("leave_working", "leave_profiling", "leave_by_exception")  # whose end is what is watched


def few(
    machine: part.Machine, step: Callable[[], float], steps: int, synchronize: bool = True
) -> None:
    for _ in range(steps):
        step()
    if synchronize:
        machine.torch.cuda.synchronize()


def sessions(machine: part.Machine) -> int:
    return 4 if machine.is_double else 10


def machine_profile(machine: part.Machine) -> Any:
    profiler = machine.torch.profiler
    return profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
    )


def sums_of(profile: Any, kernel_class: Callable[[str], str]) -> Sums:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        return sums_of_trace(path, kernel_class)


def usual(turns: list[Sums]) -> Sums:
    """The median count and time of each class."""
    found = {}
    for name in sorted({name for turn in turns for name in turn}):
        sums = [turn.get(name, (0, 0)) for turn in turns]
        found[name] = (
            round(statistics.median(count for count, _ in sums)),
            round(statistics.median(ns for _, ns in sums)),
        )
    return found


def total(sums: Sums) -> tuple[int, int]:
    return sum(count for count, _ in sums.values()), sum(ns for _, ns in sums.values())


def spread(values: list[int]) -> float:
    return (max(values) - min(values)) / max(1, statistics.median(values))


def work_classes() -> tuple[str, ...]:
    from pymon.link.gpu_sections import WORK_CLASSES

    return WORK_CLASSES


def wait_for_running(native: Any) -> None:
    until = time.monotonic() + 10
    while native.gpu_layers()["cupti"] != ("running", "running"):
        if time.monotonic() > until:
            raise part.NotPossible(f"no resume: {native.gpu_layers()['cupti']}")
        time.sleep(0.005)


def loaded(name: str) -> Any:
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def children() -> list[str]:
    """Children that are left, by name."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    pids = path.read_text(encoding="ascii").split() if path.exists() else []
    return [Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() for pid in pids]


def main(name: str) -> None:
    try:
        said = SCENARIOS[name](part.machine())
    except part.NotPossible as err:
        said = {"not_possible": str(err)}
    print("\n" + json.dumps(said), flush=True)
    if name not in LEAVING:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])

"""A trainer on a double of a GPU: run as a script, with the doubles' folder in LD_LIBRARY_PATH.

    python -m tests.probe.gpu_double STEPS [profile] [disarm] [evaluate] [fork] [raise] [leave_in_call]

CUDA is said to be up, torch's two questions about the stream are answered, and each phase of a step puts work on the
double of libcuda (2 ms forward, 3 ms backward, 1 ms optimizer) and records into the one of libcupti (10 GEMMs of 20 µs
and one all-reduce of 5 ms a step). With `profile` a session opens and ends half way, which records the GPU by its name
only; with `disarm` the probe is switched off half way, for five steps and a second; with `evaluate` 600 ms of work lie
between two steps; with `fork` a child trains on for two steps. Then one line of JSON: what the layers said at the end.
With `raise` the script ends in an exception, with `leave_in_call` while a thread is in a call of the layers'.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from types import SimpleNamespace

from tests.allocator_double import AllocatorDouble

STREAM = 0x70
PHASES_NS = {"forward": 2_000_000, "backward": 3_000_000, "optimizer": 1_000_000}
RECORDS = (
    b"kernel nvjet_hsh_128x256 20000 0 7 10\nkernel ncclDevKernel_AllReduce_Sum_bf16 5000000 0 9 1"
)


def main(steps: int, *also: str) -> None:
    import torch

    import pymon
    from pymon.probe import attach

    cuda = ctypes.CDLL("libcuda.so.1")
    cupti = ctypes.CDLL("libcupti.so.13")
    cuda.cuda_double_work.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    parent = os.getpid()
    torch.cuda.is_initialized = lambda: os.getpid() == parent  # as torch: not in a fork's child
    torch._C._cuda_getDevice = lambda: 0
    torch._C._cuda_getCurrentRawStream = lambda device: STREAM
    AllocatorDouble().replace_in(torch)

    class Work(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            cuda.cuda_double_work(STREAM, PHASES_NS["forward"])
            return value.clone()

        @staticmethod
        def backward(ctx, grad):
            cuda.cuda_double_work(STREAM, PHASES_NS["backward"])
            return grad

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            cuda.cuda_double_work(STREAM, PHASES_NS["optimizer"])
            return super().step(closure)

    model = torch.nn.Linear(4, 4)
    optimizer = Optimizer(model.parameters(), lr=0.01)
    handled = handled_signals()
    assert pymon.attach()
    native = attach.native()

    def step() -> None:
        optimizer.zero_grad()
        Work.apply(model(torch.ones(2, 4))).sum().backward()
        optimizer.step()
        cupti.cupti_double_play(RECORDS)
        time.sleep(0.002)

    step()
    wait_for(lambda: native.gpu_layers()["cupti"] == ("running", "running"))
    noted = {}
    for number in range(steps):
        if number == steps // 2:
            noted = half_way(also, step, native, cuda)
        step()
    child = forked(step, native) if "fork" in also else None
    time.sleep(1.6)  # the last flush and what is held back
    said = {
        "layers": native.gpu_layers(),
        **noted,
        "child": child,
        "handlers": [handled, handled_signals()],
    }
    print(json.dumps(said), flush=True)
    sys.stdin.readline()  # until the test has read the page
    if "leave_in_call" in also:
        threading.Thread(target=borrow_for_ever, args=(native,), daemon=True).start()
        time.sleep(0.05)
    if "raise" in also:
        raise RuntimeError("planned")


def half_way(also, step, native, cuda) -> dict:
    """What is asked for in the middle of the run, and what the layers say of it."""
    import pymon
    from pymon.probe import attach
    from pymon.probe.profiler_registry import registry

    layers = native.gpu_layers
    runs = lambda: layers()["cupti"] == ("running", "running")  # noqa: E731
    noted = {"states": [], "switched": []}
    if "profile" in also:
        session = SimpleSession()
        registry().on_open(session)
        noted["states"].append(layers()["cupti"][0])
        step()
        registry().on_end(session)
        wait_for(runs)
        noted["states"].append(layers()["cupti"][0])
    if "disarm" in also:
        budget = attach._state["sender"]._budget
        budget.tell(False, 0.0)
        noted["switched"].append(layers())
        for _ in range(5):
            step()
        time.sleep(1.0)
        budget.tell(True, 0.0)
        wait_for(runs)
        noted["switched"].append(layers())
    if "evaluate" in also:
        with pymon.evaluation():
            cuda.cuda_double_work(STREAM, 600_000_000)
    return noted


def handled_signals() -> int:
    """A bit each, but for the two that the C library takes for itself with the first thread (32 and 33)."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("SigCgt"))
    return int(line.split()[1], 16) & ~(0b11 << 31)


def forked(step, native) -> dict:
    """What a child of a fork says of the layers before and after it trained on."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        before = native.gpu_layers()
        step()
        step()
        os.write(writing, json.dumps([before, native.gpu_layers()]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = json.loads(file.read())
    assert os.waitpid(pid, 0)[1] == 0
    return said


def borrow_for_ever(native) -> None:
    while True:
        native.gpu_yield(1)
        native.gpu_resume()


class SimpleSession:
    """What `torch.autograd.profiler.profile` shows of itself when it records the GPU."""

    kineto_activities = (SimpleNamespace(name="CPU"), SimpleNamespace(name="CUDA"))


def wait_for(done) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

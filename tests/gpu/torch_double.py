"""Puts a double in the place of torch's GPU: tensors stay on the CPU, each operator becomes a kernel of the doubles of
libcuda and libcupti, which must be the ones that the loader finds (LD_LIBRARY_PATH).

`install()` patches the few names of torch.cuda that `bench/gpu` and `tests/gpu` call. What it shows is that their
plumbing works; none of its times means anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from types import SimpleNamespace
from typing import Any

from tests.allocator_double import AllocatorDouble

STREAM = 0x70
KERNEL_NS, GAP_NS = 5000, 1000
# Operators that launch nothing on a GPU; views and allocations.
_QUIET = (
    "detach",
    "empty",
    "view",
    "t.",
    "transpose",
    "as_strided",
    "_local_scalar",
    "alias",
    "is_",
)
_NAMES = {"mm": "gemm_mm", "addmm": "gemm_addmm", "bmm": "gemm_bmm", "convolution": "convolution"}
_PID = os.getpid()


def install() -> str:
    """The device that tensors live on."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    torch.set_num_threads(1)
    gpu = Gpu()

    class Launching(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = func._schema.name.removeprefix("aten::")
            if os.getpid() == _PID and not name.startswith(_QUIET) and not func.is_view:
                gpu.launch(_NAMES.get(name, name if name[0] == "_" else f"elementwise_{name}"))
            return func(*args, **(kwargs or {}))

    # One thread trains; the mode stays on for good.
    Launching().__enter__()
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.is_initialized = lambda: os.getpid() == _PID  # as torch: not in a fork's child
    cuda.init = lambda: None
    cuda.synchronize = gpu.synchronize
    cuda.current_stream = lambda: SimpleNamespace(cuda_stream=STREAM)
    cuda.device_count = lambda: 1
    cuda.get_device_name = lambda device=0: "a double"
    cuda.mem_get_info = lambda: (60 << 30, 80 << 30)
    cuda.memory_reserved = lambda: 0
    cuda._sleep = lambda cycles: gpu.cuda.cuda_double_work(STREAM, 20_000_000)
    cuda.Event = lambda enable_timing=False: Event(gpu)
    cuda.CUDAGraph = lambda: Graph(gpu)
    cuda.graph = capturing
    torch._C._cuda_getDevice = lambda: 0
    torch._C._cuda_getCurrentRawStream = lambda device: STREAM
    allocator = AllocatorDouble(allocated_bytes=3 << 20, reserved_bytes=20 << 20)
    allocator.replace_in(torch)
    cuda.memory_stats = lambda device=0: dict(flat("", allocator.stats(0)))
    torch.profiler.profile = lambda **how: Session(gpu)
    return "cpu"


def flat(prefix: str, stats: dict[str, Any]) -> Any:
    """As torch.cuda.memory_stats: names joined by dots."""
    for name, value in stats.items():
        if isinstance(value, dict):
            yield from flat(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value


class Gpu:
    """Both doubles, and where launches go: to the GPU, into a graph that is being captured, or into a profile."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cupti = ctypes.CDLL("libcupti.so.13")
        self.cuda.cuda_double_work.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self.cuda.cuda_double_capture.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self.cuda.cuda_double_captures_broken.restype = ctypes.c_uint64
        self.cuda.cuEventRecord.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._done = ctypes.c_void_p()
        self.cuda.cuEventCreate(ctypes.byref(self._done), 0)
        self.captured: list[str] | None = None
        self.profiled: list[str] | None = None
        self._lock = threading.Lock()  # autograd may run in a thread of its own

    def launch(self, name: str) -> None:
        if self.captured is not None:
            self.captured.append(name)
            return
        self.run("kernel", name, 1)

    def run(self, how: str, name: str, count: int) -> None:
        with self._lock:
            if self.profiled is not None:
                self.profiled += [name] * count
            self.cuda.cuda_double_work(STREAM, count * (KERNEL_NS + GAP_NS))
            self.cupti.cupti_double_play(f"{how} {name} {KERNEL_NS} {GAP_NS} 7 {count}".encode())

    def synchronize(self) -> None:
        self.cuda.cuEventRecord(self._done, STREAM)
        while self.cuda.cuEventQuery(self._done) != 0:
            time.sleep(0.0002)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._event = gpu, ctypes.c_void_p()
        gpu.cuda.cuEventCreate(ctypes.byref(self._event), 0)

    def record(self) -> None:
        self._gpu.cuda.cuEventRecord(self._event, STREAM)

    def query(self) -> bool:
        return self._gpu.cuda.cuEventQuery(self._event) == 0


class Graph:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.kernels = gpu, []

    def replay(self) -> None:
        self.gpu.run("graph", "elementwise_of_a_graph", len(self.kernels))


@contextlib.contextmanager
def capturing(graph: Graph) -> Any:
    """As torch.cuda.graph in global mode: what another thread asks of an event meanwhile breaks it."""
    gpu = graph.gpu
    broken = gpu.cuda.cuda_double_captures_broken()
    gpu.cuda.cuda_double_capture(STREAM, 1)
    gpu.captured = graph.kernels
    try:
        yield
    finally:
        gpu.captured = None
        gpu.cuda.cuda_double_capture(STREAM, 0)
    if gpu.cuda.cuda_double_captures_broken() != broken:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


class Session:
    """Borrows CUPTI as torch.profiler.profile does; its trace is what was launched."""

    kineto_activities = (SimpleNamespace(name="CPU"), SimpleNamespace(name="CUDA"))

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._kernels = gpu, []

    def __enter__(self) -> Session:
        from pymon.probe.profiler_registry import registry

        if registry().on_open is not None:
            registry().on_open(self)
        self._gpu.profiled = self._kernels
        return self

    def __exit__(self, *exc: object) -> None:
        from pymon.probe.profiler_registry import registry

        self._gpu.profiled = None
        if registry().on_end is not None:
            registry().on_end(self)

    def export_chrome_trace(self, path: str) -> None:
        import json

        events = [
            {"ph": "X", "cat": "kernel", "name": name, "dur": KERNEL_NS / 1e3}
            for name in self._kernels
        ]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events}, file)

"""What a profiler trace comes to; docs/facts.md defines each number."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pymon.model.diagnosis import CodeSite, Diagnosis


class WindowSource(Enum):
    """Where the looked-at part of the trace comes from."""

    PROFILER_STEPS = "profiler_steps"  # ProfilerStep ranges
    CAPTURE = "capture"  # the capture's own record says how many steps the file holds
    OPTIMIZER_STEPS = "optimizer_steps"  # from the first end of Optimizer.step to the last
    WHOLE_TRACE = "whole_trace"  # no step is marked
    NONE = "none"  # nothing usable


@dataclass(frozen=True, slots=True)
class GpuTime:
    """Seconds of the GPU within the window; the `idle_by_*` part `idle_s`."""

    busy_s: float
    compute_s: float
    communication_s: float
    copy_s: float
    exposed_communication_s: float
    exposed_copy_s: float
    idle_s: float
    idle_by_data_s: float
    idle_by_gpu_s: float
    idle_by_sync_s: float
    idle_by_allocator_s: float
    idle_by_host_s: float
    sync_recoverable_s: float
    launch_to_start_p50_s: float | None
    kernel_p50_s: float | None
    kernels_total: int
    pageable_to_device_bytes: int
    pageable_to_device_api_s: float


@dataclass(frozen=True, slots=True)
class LoaderTime:
    """The DataLoader's `__next__` within the window."""

    calls_total: int
    wait_s: float
    longest_s: float
    worker_processes: bool | None  # False: num_workers=0, by the iterator's name; None: not told


@dataclass(frozen=True, slots=True)
class ScalarReads:
    """Outermost aten::item, _local_scalar_dense, nonzero and is_nonzero within the window."""

    calls_total: int
    with_copy_total: int  # those that copied a few bytes from the GPU, and so waited for it
    time_s: float


@dataclass(frozen=True, slots=True)
class NamedTime:
    """A name with its calls and seconds."""

    name: str
    calls_total: int
    time_s: float


@dataclass(frozen=True, slots=True)
class CallSites:
    """Calls with file and line, recorded by the probe beside its own capture."""

    steps: int
    window_s: float
    sites: tuple[CodeSite, ...]  # by total time


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """One file. `gpu` is None where the trace has no GPU events: unknown, which is not idle."""

    path: str
    bytes_total: int  # unpacked
    events_total: int
    rank: int | None
    world_size: int | None
    host_name: str
    gpu_name: str
    window_source: WindowSource
    window_s: float
    steps_total: int  # 0: no step is marked
    step_s: tuple[float, ...]
    gpu: GpuTime | None
    loader: LoaderTime | None  # None: no DataLoader in the window
    reads: ScalarReads
    blocked_s: float  # the host stood in calls that wait for the GPU
    waited_s: float  # the same without host-to-device copies
    blocking: tuple[NamedTime, ...]
    operators_s: float
    top_operators: tuple[NamedTime, ...]  # by self time
    top_kernels: tuple[NamedTime, ...]
    sites: tuple[CodeSite, ...]  # from the trace's own stacks or annotations
    call_sites: CallSites | None
    cut_short: bool  # the file ends before the trace does
    usable: bool  # there is something to judge
    problems: tuple[str, ...]  # what lowers the credit of all this

    @property
    def step_mean_s(self) -> float | None:
        """Seconds of a step; None where no step is marked."""
        return self.window_s / self.steps_total if self.steps_total else None

    def share(self, part_s: float) -> float:
        """A part of the window as a ratio; 0 for an empty window."""
        return part_s / self.window_s if self.window_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class TraceReport:
    """All traces of one question, and what the rules say of them, first advice first."""

    traces: tuple[TraceFacts, ...]
    diagnoses: tuple[Diagnosis, ...]
    problems: tuple[str, ...]

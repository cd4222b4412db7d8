"""GPU work as the training process itself measures it (csrc/gpu): by CUDA events, and by sums over CUPTI's records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pymon.model.distribution import Histogram


class LayerState(Enum):
    """How a GPU layer of the probe stands; the words beside it say why."""

    OFF = "off"  # no CUDA in the process yet
    RUNNING = "running"
    YIELDED = "yielded"  # lent to another profiler for a while
    ABSENT = "absent"  # cannot run there
    DISARMED = (
        "disarmed"  # ran, and was switched off: over its budget, or at the end of the process
    )


@dataclass(frozen=True, slots=True)
class GpuStep:
    """GPU time of one step; phases as PHASES in pymon/model/training.py."""

    step: int
    gpu_s: float
    phases_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CudaEvents:
    """Times between events on torch's current stream, so a phase's time holds the stream's work and its waits.

    Totals are since the attach; steps that were left out, or lost an event, are untimed and in no sum.
    """

    state: LayerState
    reason: str
    steps_timed_total: int
    steps_untimed_total: int
    step_s_total: float
    phase_s_total: tuple[float, ...]  # one per PHASES
    events_lost_total: int  # overwritten before they were read, or refused by CUDA
    own_cpu_s_total: float
    new_steps: tuple[GpuStep, ...]  # timed since the previous tick, oldest first


@dataclass(frozen=True, slots=True)
class Work:
    """One class of GPU work (`name` as in csrc/core/layout.h): kernels, copies, sets, and the host's waits."""

    name: str
    count_total: int
    spent_s_total: float
    longest_s: float
    bytes_total: int  # of copies and sets
    histogram: Histogram


@dataclass(frozen=True, slots=True)
class CuptiSums:
    """Sums over the records of kernels, copies and sets; GPU seconds of all devices of the process together."""

    state: LayerState
    reason: str
    records_total: int
    records_lost_total: int  # dropped by CUPTI, or without usable times
    busy_s_total: float  # union of kernels, copies and sets over streams
    compute_busy_s_total: float  # union of kernels without NCCL's
    nccl_busy_s_total: float
    nccl_exposed_s_total: float  # of it, what no other kernel overlapped
    gap_s_total: float  # idle between busy stretches
    gaps_total: int
    kernels_total: int
    launches_total: int  # a CUDA graph is one
    devices: int
    host_bytes: int
    device_bytes: int
    own_cpu_s_total: float
    yielded_s_total: float
    work: tuple[Work, ...]  # the classes that occurred

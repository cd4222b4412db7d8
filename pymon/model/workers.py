"""Training processes as the kernel sees them, with their loader workers, and where they may run."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.model.absence import Absence
from pymon.model.snapshot import Section

# The kernel's letters of /proc/PID/stat, in words.
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "uninterruptible",
    "Z": "zombie",
    "T": "stopped",
    "t": "stopped",  # by a debugger
}


@dataclass(frozen=True, slots=True)
class TrainerUse:
    """One training process and its workers. What may not be read is None."""

    pid: int
    rank: int | None
    job_id: str
    state: str  # one of STATES' words, or `other`
    cpu_s_total: float
    rss_bytes: int
    threads: int
    descriptors: int | None
    descriptors_max: int | None
    workers: int
    workers_by_state: tuple[tuple[str, int], ...]
    workers_cpu_s_total: float  # those that ended included, since the daemon began to watch
    workers_rss_bytes: int  # pages that they share are counted in each
    workers_descriptors: int | None  # of all; None where nobody could count them
    workers_usable_cpus: int | None  # processors that at least one of them may run on
    workers_started_total: (
        int  # since the daemon began to watch; grows each epoch without persistent_workers
    )
    other_children: int  # compile workers, resource trackers and the like


@dataclass(frozen=True, slots=True)
class WorkersSection(Section):
    """All that are watched."""

    trainers: tuple[TrainerUse, ...]
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuDistance:
    """How far a GPU is from the processors that a process may use, by the firmware's table: 10 is the same node."""

    gpu: int
    uuid: str
    node: int
    nearest: int
    farthest: int  # greater than `nearest` where the process is not bound to one node


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one process may run."""

    pid: int
    rank: int | None
    job_id: str
    affinity_cpus: int  # logical processors in its mask, which never exceeds its cpuset
    affinity_cores: int | None  # physical ones
    quota_cpus: float | None  # the tightest of its group and all above; None: no quota
    usable_cpus: float  # the lesser of mask and quota; whole workers are its floor
    nodes: int | None  # NUMA nodes that the mask touches
    gpu_distances: tuple[GpuDistance, ...]


@dataclass(frozen=True, slots=True)
class PlacementSection(Section):
    """All that are watched, and what the machine has."""

    cores: int | None  # physical ones of the machine
    nodes: int | None
    placements: tuple[Placement, ...]
    absent: tuple[Absence, ...] = ()

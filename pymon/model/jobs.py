"""Whose the GPUs are: GPU -> process -> rank -> job, and for how long nobody used them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pymon.model.absence import Absence
from pymon.model.snapshot import Section


class Manager(Enum):
    """What started a process, by the path of its control group."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    DOCKER = "docker"  # and Podman: a container without an orchestrator
    SYSTEMD = "systemd"  # a unit or a login session
    NONE = ""  # the path tells none


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What the kernel's paths tell of a process's job; empty is unknown. All of it is printable."""

    manager: Manager = Manager.NONE
    slurm_job: str = ""
    slurm_step: str = ""
    pod_uid: str = ""
    container_id: str = ""
    unit: str = ""
    group: str = ""  # short name of the job's, container's or unit's control group

    @property
    def job(self) -> str:
        """The job's own name where its manager has one."""
        return self.slurm_job or self.pod_uid or self.container_id[:12]


class Owner(Enum):
    """What is known of a process that the driver lists on a GPU."""

    ATTACHED = "attached"  # it carries a probe
    UNATTACHED = "unattached"  # it lives, without one
    GONE = "gone"  # it is dead, or there is none, and still it holds the GPU
    UNKNOWN = "unknown"  # the driver's pid cannot be looked up from here


@dataclass(frozen=True, slots=True)
class Holding:
    """One process on one GPU; `pid` is the driver's."""

    gpu: int
    uuid: str
    gpu_instance_id: int | None
    pid: int
    memory_bytes: int | None
    owner: Owner


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A living process that carries a probe or holds a GPU; `pid` is that of the /proc that the daemon reads."""

    pid: int
    attach_id: str  # empty without a probe
    label_pid: int  # as its other series are labelled
    label_job_id: str  # likewise
    uid: int
    user: str
    rank: int | None
    job_id: str  # as the process says, else its manager's
    identity: JobIdentity
    gpus: tuple[
        tuple[int, str, int | None], ...
    ]  # index, UUID, GPU instance; empty where not known
    start_ticks: int


@dataclass(frozen=True, slots=True)
class GpuTime:
    """Since the daemon began; a GPU that two jobs share counts whole for each."""

    user: str
    job_id: str
    allocated_s_total: float  # a process of the job held a GPU, and its use was known
    idle_s_total: float  # of that: no kernel ran, by the driver


@dataclass(frozen=True, slots=True)
class JobsSection(Section):
    """Processes by rank and job, and what the driver lists."""

    processes: tuple[JobProcess, ...]
    holdings: tuple[Holding, ...]
    gpu_times: tuple[GpuTime, ...]
    host_pids: bool  # whether the driver's pids can be looked up from here
    absent: tuple[Absence, ...] = ()

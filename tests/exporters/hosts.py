"""A host on which everything is there, as its collectors tell of it."""

from pymon.model.absence import Absence, Why
from pymon.model.cgroup import CgroupSection, CgroupUse
from pymon.model.host import (
    BlockedProcess,
    BlockedSection,
    Disk,
    DiskSection,
    HostSection,
    InfinibandPort,
    InfinibandSection,
    Interface,
    LustreOperation,
    LustreSection,
    NetworkSection,
    NfsMount,
    NfsOperation,
    NfsSection,
    PciLink,
    PciSection,
    Pressure,
    PressureSection,
    ProcessShm,
    ShmSection,
)
from pymon.model.jobs import GpuTime, Holding, JobIdentity, JobProcess, JobsSection, Manager, Owner
from pymon.model.pods import PodGpu, PodsSection
from pymon.model.snapshot import Outcome, Snapshot, State
from pymon.model.workers import (
    GpuDistance,
    Placement,
    PlacementSection,
    TrainerUse,
    WorkersSection,
)

WHO = (100, 0, "77")  # pid, rank, job
IDENTITY = JobIdentity(
    Manager.SLURM,
    slurm_job="77",
    slurm_step="0",
    pod_uid="p",
    container_id="c",
    unit="u",
    group="job_77",
)
JOB = JobProcess(
    100, "a", 100, "77", 1000, "ann", 0, "77", IDENTITY, ((0, "GPU-0", None), (1, "GPU-1", 3)), 1
)
ABSENT = (Absence("shm", Why.NO_PERMISSION, 2, "/proc/7/root: Permission denied"),)
PRESSURES = (Pressure("io", 2.5, 1.0),)
SECTIONS = {
    "host": HostSection(
        2, 0.5, 1000, 400, (("user", 1.5),), 3, 100, 300, 7, 20, 3, 0, 50, 40, 5, 6, 70, 1
    ),
    "pressure": PressureSection(PRESSURES),
    "shm": ShmSection(64, 4, 60, (ProcessShm(*WHO, True, 64, 4, 60),), ABSENT),
    "cgroup": CgroupSection(
        (CgroupUse("job_77", 7.65, 151, 116, 6.1, 5.0, 4, 1000, 900, 700, 100, 50, 0, PRESSURES),)
    ),
    "placement": PlacementSection(
        4, 2, (Placement(*WHO, 2, 1, 7.65, 2.0, 1, (GpuDistance(0, "GPU-0", 1, 10, 21),)),)
    ),
    "workers": WorkersSection(
        (
            TrainerUse(
                *WHO, "running", 9.5, 40, 3, 30, 1024, 2, (("sleeping", 2),), 3.5, 80, 60, 2, 4, 1
            ),
        )
    ),
    "blocked": BlockedSection(2, 1, (BlockedProcess(7, "cp", 30.0),)),
    "disk": DiskSection((Disk("sda", 1, 2, 3.0, 4, 5, 6.0, 7.0),)),
    "network": NetworkSection((Interface("eth0", 1, 2, 3, 4, 5, 6, 12.5e9),)),
    "infiniband": InfinibandSection(
        (InfinibandPort("mlx5_0", "1", True, 50e9, 40, 80, 5, (("symbol", 0),)),)
    ),
    "pci": PciSection((PciLink("0000:3b:00.0", "gpu", 8, 16, 4, 5),)),
    "nfs": NfsSection(
        (NfsMount("fs:/data", 1000, 2000, (NfsOperation("read", 9, 1, 0, 1.5, 2.5),)),)
    ),
    "lustre": LustreSection((LustreOperation("fs", "llite", "read", 500, 2.5),)),
    "pods": PodsSection((PodGpu("ml", "train-0", "main", "GPU-0"),)),
    "jobs": JobsSection(
        (JOB,),
        (
            Holding(0, "GPU-0", None, 100, 10, Owner.ATTACHED),
            Holding(1, "GPU-1", 3, 9, 10, Owner.GONE),
        ),
        (GpuTime("ann", "77", 20.0, 10.0),),
        True,
    ),
}


def snapshot(**sections):
    """A tick; sections of other names replace those of `SECTIONS`."""
    chosen = {**SECTIONS, **sections}
    outcomes = [Outcome(name, State.OK, 0.001, one) for name, one in chosen.items()]
    return Snapshot(0, 1_700_000_000_000_000_000, tuple(outcomes))

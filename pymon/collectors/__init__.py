"""The visible list of collectors: each reads one subject of the outside world into its section of the Snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

from pymon.collectors.blocked import BlockedCollector
from pymon.collectors.cgroup import CgroupCollector
from pymon.collectors.disk import DiskCollector
from pymon.collectors.goodput import GoodputCollector
from pymon.collectors.host import HostCollector
from pymon.collectors.infiniband import InfinibandCollector
from pymon.collectors.jobs import JobsCollector
from pymon.collectors.lustre import LustreCollector
from pymon.collectors.network import NetworkCollector
from pymon.collectors.nfs import NfsCollector
from pymon.collectors.nvml import NvmlCollector
from pymon.collectors.pci import PciCollector
from pymon.collectors.placement import PlacementCollector
from pymon.collectors.pods import PodsCollector
from pymon.collectors.pressure import PressureCollector
from pymon.collectors.processes import Attached, ProcessesCollector
from pymon.collectors.shm import ShmCollector
from pymon.collectors.watching import Newest, no_snapshot
from pymon.collectors.workers import WorkersCollector
from pymon.collectors.xid import XidCollector
from pymon.model.gpu import GpuSection
from pymon.model.snapshot import Section
from pymon.sources.cgroup_paths import CgroupPaths
from pymon.sources.cgroupfs import Cgroupfs
from pymon.sources.lustre import Lustre
from pymon.sources.podresources import PodResources
from pymon.sources.proc_devices import ProcDevices
from pymon.sources.process import Processes
from pymon.sources.procfs import Procfs
from pymon.sources.roots import Roots
from pymon.sources.shm import ProcessMounts
from pymon.sources.sysfs import Sysfs

# Answered by the kernel from its own memory: they share a thread, since waking one costs more than what they read.
QUICK = (
    "processes",
    "goodput",
    "host",
    "pressure",
    "cgroup",
    "placement",
    "blocked",
    "disk",
    "network",
    "xid",
)


class Collector(Protocol):
    """One subject. `collect` raises SourceAbsent where it does not exist here, SourceFailed where reading it broke."""

    name: ClassVar[str]
    interval_s: ClassVar[float]
    timeout_s: ClassVar[float]

    def collect(self) -> Section:
        """Read once; may block, since it runs on a thread of its own, or of the quick ones."""
        ...


def all_collectors(
    attachments: Callable[[], Iterable[Attached]],
    gpus: Callable[[], GpuSection],
    newest: Newest = no_snapshot,
    roots: Roots | None = None,
) -> tuple[Collector, ...]:
    """Every collector there is, each with its real source. `newest`: what the tick before knew."""
    roots = roots or Roots()
    procfs, sysfs, processes = Procfs(roots.proc), Sysfs(roots.sys), Processes(roots.proc)
    devices = ProcDevices(roots.proc)
    cgroups = Cgroupfs(CgroupPaths(roots))
    return (
        ProcessesCollector(attachments),
        NvmlCollector(gpus),
        JobsCollector(processes, newest),
        GoodputCollector(newest),
        HostCollector(procfs),
        PressureCollector(procfs),
        ShmCollector(mounts=ProcessMounts(processes), newest=newest),
        CgroupCollector(processes, cgroups, newest),
        PlacementCollector(processes, cgroups, sysfs, newest),
        WorkersCollector(processes, newest),
        BlockedCollector(processes),
        DiskCollector(devices, sysfs),
        NetworkCollector(devices, sysfs),
        InfinibandCollector(sysfs),
        PciCollector(sysfs),
        XidCollector(),
        NfsCollector(devices),
        LustreCollector(Lustre(roots)),
        PodsCollector(PodResources(roots.kubelet)),
    )

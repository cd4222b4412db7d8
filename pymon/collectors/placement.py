"""Which processors each training process may use, against real cores and quota, and how far its GPUs are from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.clock import Clock, SystemClock
from pymon.base.errors import SourceAbsent
from pymon.collectors.absences import Absences
from pymon.collectors.watching import Newest, Watched, no_snapshot, watched
from pymon.model.gpu import GpuSection
from pymon.model.jobs import JobsSection
from pymon.model.workers import GpuDistance, Placement, PlacementSection
from pymon.sources.cgroupfs import Cgroupfs
from pymon.sources.process import Processes
from pymon.sources.sysfs import Sysfs

_TOPOLOGY_S = 300.0  # read again: processors are switched off and on in rare hours


@dataclass(frozen=True, slots=True)
class _Topology:
    cores: dict[int, int]  # processor -> core
    nodes: dict[int, frozenset[int]]
    read_ns: int


@dataclass(slots=True)
class PlacementCollector:
    """Gives one `PlacementSection`.

    Source: /proc/PID/status (Cpus_allowed_list), the groups' quota, /sys/devices/system/{cpu,node}, and the GPUs'
        numa_node in /sys/bus/pci.
    Cost: some five reads for each process; one for each processor each five minutes.
    Errors: what is missing is None and counted. `SourceAbsent` where no process is watched.
    """

    name: ClassVar[str] = "placement"
    interval_s: ClassVar[float] = 30.0
    timeout_s: ClassVar[float] = 0.5
    processes: Processes = field(default_factory=Processes)
    cgroups: Cgroupfs = field(default_factory=Cgroupfs)
    sysfs: Sysfs = field(default_factory=Sysfs)
    newest: Newest = no_snapshot
    clock: Clock = field(default_factory=SystemClock)
    _topology: _Topology | None = None

    def collect(self) -> PlacementSection:
        """Read once."""
        absences = Absences()
        processes = watched(self.newest)
        if not processes:
            raise SourceAbsent("no training process to look at")
        topology = self._topology_now(absences)
        placements = [self._placement(who, topology, absences) for who in processes]
        return PlacementSection(
            len(set(topology.cores.values())) or None,
            len(topology.nodes) or None,
            tuple(placement for placement in placements if placement is not None),
            absences.all(),
        )

    def _placement(self, who: Watched, topology: _Topology, absences: Absences) -> Placement | None:
        status = absences.get("affinity", self.processes.status, who.pid)
        if status is None or not status.cpus_allowed:
            return None
        mask = status.cpus_allowed
        online = mask & topology.cores.keys() if topology.cores else mask
        quota_cpus = absences.get("quota", self._quota, who.pid)
        cores = {topology.cores[cpu] for cpu in online} if topology.cores else None
        touched = tuple(node for node, cpus in topology.nodes.items() if cpus & mask)
        return Placement(
            pid=who.label_pid,
            rank=who.rank,
            job_id=who.job_id,
            affinity_cpus=len(online),
            affinity_cores=len(cores) if cores else None,
            quota_cpus=quota_cpus,
            usable_cpus=float(len(online) if quota_cpus is None else min(quota_cpus, len(online))),
            nodes=len(touched) or None,
            gpu_distances=tuple(self._distances(who.pid, touched, topology, absences)),
        )

    def _quota(self, pid: int) -> float | None:
        group = self.cgroups.group(self.processes.cgroup(pid), "cpu")
        return self.cgroups.quota(group).cpus

    def _distances(
        self, pid: int, touched: tuple[int, ...], topology: _Topology, absences: Absences
    ) -> Iterator[GpuDistance]:
        for gpu, uuid, address in _gpus_of(pid, self.newest):
            node = absences.get("gpu_node", self.sysfs.pci_node, address)
            if node is None or not touched:
                continue
            all_nodes = tuple(topology.nodes)
            told = absences.get("distance", self.sysfs.distances, node, all_nodes)
            if told is not None:
                near, far = (pick(told[one] for one in touched) for pick in (min, max))
                yield GpuDistance(gpu, uuid, node, near, far)

    def _topology_now(self, absences: Absences) -> _Topology:
        now_ns = self.clock.monotonic_ns()
        known = self._topology
        if known is None or now_ns - known.read_ns > _TOPOLOGY_S * 1e9:
            nodes = absences.get("nodes", self.sysfs.nodes) or {}
            known = self._topology = _Topology(self._cores(absences), nodes, now_ns)
        return known

    def _cores(self, absences: Absences) -> dict[int, int]:
        """Of all processors, or none: some alone would make a smaller machine of it."""

        def read() -> dict[int, int]:
            return {cpu: self.sysfs.core(cpu) for cpu in self.sysfs.cpus_online()}

        return absences.get("cores", read) or {}


def _gpus_of(pid: int, newest: Newest) -> Iterator[tuple[int, str, str]]:
    """Index, UUID and PCI address, as sysfs writes it, of each GPU that the process holds."""
    snapshot = newest()
    jobs = snapshot.get(JobsSection) if snapshot else None
    gpus = snapshot.get(GpuSection) if snapshot else None
    if jobs is None or gpus is None:
        return
    addresses = {gpu.uuid: gpu.identity.pci_bus_id for gpu in gpus.gpus if gpu.identity is not None}
    for process in jobs.processes:
        for gpu, uuid in sorted({(g, u) for g, u, _ in process.gpus if process.pid == pid}):
            if address := addresses.get(uuid):
                yield (
                    gpu,
                    uuid,
                    address.lower()[-len("0000:3b:00.0") :],
                )  # NVML's domain has eight digits

"""The samples of the host: each family of `pymon.model.catalog_host` from the section it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pymon.exporters.sample import Labels, Part, Sample
from pymon.model.cgroup import CgroupSection
from pymon.model.host import (
    BlockedSection,
    DiskSection,
    HostSection,
    InfinibandSection,
    LustreSection,
    NetworkSection,
    NfsSection,
    PciSection,
    Pressure,
    PressureSection,
    ShmSection,
)
from pymon.model.snapshot import Section, Snapshot
from pymon.model.workers import Placement, PlacementSection, TrainerUse, WorkersSection

# Fields that are a family each.
_HOST: Final = {
    "cpu_count": "pymon_host_cpus",
    "cpu_busy_ratio": "pymon_host_cpu_busy_ratio",
    "processes_blocked": "pymon_host_processes_blocked",
} | {
    name: f"pymon_host_{name}"
    for name in HostSection.__slots__
    if name.startswith(("memory_", "swap_", "major_", "oom_"))
}
_SHM: Final = ("total_bytes", "used_bytes", "free_bytes")
_TRAINER: Final = {
    "cpu_s_total": "pymon_process_cpu_seconds_total",
    "rss_bytes": "pymon_process_resident_memory_bytes",
    "threads": "pymon_process_threads",
    "descriptors": "pymon_process_open_fds",
    "descriptors_max": "pymon_process_max_fds",
    "workers_started_total": "pymon_loader_workers_started_total",
    "workers_cpu_s_total": "pymon_loader_workers_cpu_seconds_total",
    "workers_rss_bytes": "pymon_loader_workers_resident_memory_bytes",
    "workers_descriptors": "pymon_loader_workers_open_fds",
    "workers_usable_cpus": "pymon_loader_workers_usable_cpus",
}
_PLACEMENT: Final = {
    "usable_cpus": "pymon_process_usable_cpus",
    "affinity_cpus": "pymon_process_affinity_cpus",
    "affinity_cores": "pymon_process_affinity_cores",
    "nodes": "pymon_process_numa_nodes",
}
_CGROUP: Final = {
    "quota_cpus": "pymon_cgroup_cpu_quota_cpus",
    "periods_total": "pymon_cgroup_cpu_periods_total",
    "throttled_periods_total": "pymon_cgroup_cpu_throttled_periods_total",
    "throttled_s_total": "pymon_cgroup_cpu_throttled_seconds_total",
    "cpu_s_total": "pymon_cgroup_cpu_seconds_total",
    "cpuset_cpus": "pymon_cgroup_cpuset_cpus",
    "memory_limit_bytes": "pymon_cgroup_memory_limit_bytes",
    "memory_used_bytes": "pymon_cgroup_memory_used_bytes",
    "memory_cache_bytes": "pymon_cgroup_memory_cache_bytes",
    "memory_anonymous_bytes": "pymon_cgroup_memory_anonymous_bytes",
    "memory_shared_bytes": "pymon_cgroup_memory_shared_bytes",
    "oom_kills_total": "pymon_cgroup_oom_kills_total",
}
_DISK: Final = {
    "reads_total": "pymon_disk_reads_total",
    "read_bytes_total": "pymon_disk_read_bytes_total",
    "read_s_total": "pymon_disk_read_seconds_total",
    "writes_total": "pymon_disk_writes_total",
    "written_bytes_total": "pymon_disk_written_bytes_total",
    "write_s_total": "pymon_disk_write_seconds_total",
    "busy_s_total": "pymon_disk_busy_seconds_total",
}
_INTERFACE: Final = {
    "receive_bytes_total": "pymon_network_receive_bytes_total",
    "transmit_bytes_total": "pymon_network_transmit_bytes_total",
    "speed_bytes_per_s": "pymon_network_speed_bytes_per_second",
}
_PORT: Final = {
    "active": "pymon_infiniband_port_up",
    "rate_bytes_per_s": "pymon_infiniband_rate_bytes_per_second",
    "receive_bytes_total": "pymon_infiniband_receive_bytes_total",
    "transmit_bytes_total": "pymon_infiniband_transmit_bytes_total",
    "transmit_wait_ticks_total": "pymon_infiniband_transmit_waits_total",
}
_LINK: Final = {
    name: f"pymon_pci_link_{name}"
    for name in ("width", "width_max", "generation", "generation_max")
}
_EXPORT: Final = {
    "read_bytes_total": "pymon_nfs_read_bytes_total",
    "written_bytes_total": "pymon_nfs_written_bytes_total",
}
_NFS: Final = {
    "requests_total": "pymon_nfs_requests_total",
    "response_s_total": "pymon_nfs_response_seconds_total",
    "request_s_total": "pymon_nfs_request_seconds_total",
    "retransmissions_total": "pymon_nfs_retransmissions_total",
    "timeouts_total": "pymon_nfs_timeouts_total",
}
_LUSTRE: Final = {
    "operations_total": "pymon_lustre_operations_total",
    "spent_s_total": "pymon_lustre_operation_seconds_total",
}


def about_host(snapshot: Snapshot) -> Iterator[Part]:
    """Everything that the host's collectors gave."""
    for outcome in snapshot.outcomes:
        if outcome.section is not None:
            key = ("section", outcome.collector)
            yield key, outcome.section, _about(outcome.collector, outcome.section)


def _about(collector: str, section: Section) -> Iterator[Sample]:
    if (about := _ABOUT.get(type(section))) is not None:
        yield from about(section)
    for absence in getattr(section, "absent", ()):
        labels = (collector, absence.what, absence.why.value)
        yield "pymon_readings_absent", labels, absence.count


def _fields(row: object, families: dict[str, str], labels: Labels) -> Iterator[Sample]:
    """A sample for each field that is there."""
    for name, family in families.items():
        value = getattr(row, name)
        if value is not None:
            yield family, labels, value


def _who(row: TrainerUse | Placement) -> Labels:
    return (_rank(row.rank), row.job_id, str(row.pid))


def _rank(rank: int | None) -> str:
    return "" if rank is None else str(rank)


def _pressures(whose: str, pressures: Iterable[Pressure], labels: Labels) -> Iterator[Sample]:
    for one in pressures:
        named = (*labels, one.resource)
        yield f"pymon_{whose}_pressure_waiting_seconds_total", named, one.waiting_s_total
        if one.stalled_s_total is not None:
            yield f"pymon_{whose}_pressure_stalled_seconds_total", named, one.stalled_s_total


def _host(section: HostSection) -> Iterator[Sample]:
    yield from _fields(section, _HOST, ())
    for mode, spent_s in section.cpu_s_total:
        yield "pymon_host_cpu_seconds_total", (mode,), spent_s


def _blocked(section: BlockedSection) -> Iterator[Sample]:
    yield "pymon_host_processes_uninterruptible", (), section.seen
    yield "pymon_host_processes_stuck", (), section.stuck


def _shm(section: ShmSection) -> Iterator[Sample]:
    yield from _fields(section, {name: f"pymon_shm_{name}" for name in _SHM}, ())
    for one in section.processes:
        labels = (_rank(one.rank), one.job_id, str(one.pid))
        yield from _fields(one, {name: f"pymon_process_shm_{name}" for name in _SHM}, labels)


def _cgroups(section: CgroupSection) -> Iterator[Sample]:
    for group in section.groups:
        yield from _fields(group, _CGROUP, (group.name,))
        yield from _pressures("cgroup", group.pressures, (group.name,))


def _placements(section: PlacementSection) -> Iterator[Sample]:
    machine = {"cores": "pymon_host_cores", "nodes": "pymon_host_numa_nodes"}
    yield from _fields(section, machine, ())
    for one in section.placements:
        labels = _who(one)
        yield from _fields(one, _PLACEMENT, labels)
        for gpu in one.gpu_distances:
            for bound, distance in (("nearest", gpu.nearest), ("farthest", gpu.farthest)):
                named = (bound, str(gpu.gpu), gpu.uuid, *labels)
                yield "pymon_process_gpu_numa_distance", named, distance


def _trainers(section: WorkersSection) -> Iterator[Sample]:
    for one in section.trainers:
        labels = _who(one)
        yield from _fields(one, _TRAINER, labels)
        for state, count in one.workers_by_state:
            yield "pymon_loader_workers", (state, *labels), count


def _disks(section: DiskSection) -> Iterator[Sample]:
    for disk in section.disks:
        yield from _fields(disk, _DISK, (disk.device,))


def _interfaces(section: NetworkSection) -> Iterator[Sample]:
    for one in section.interfaces:
        yield from _fields(one, _INTERFACE, (one.device,))
        for direction in ("receive", "transmit"):
            for what in ("errors", "drops"):
                count = getattr(one, f"{direction}_{what}_total")
                yield f"pymon_network_{what}_total", (one.device, direction), count


def _ports(section: InfinibandSection) -> Iterator[Sample]:
    for port in section.ports:
        labels = (port.device, port.port)
        yield from _fields(port, _PORT, labels)
        for kind, count in port.errors_total:
            yield "pymon_infiniband_errors_total", (*labels, kind), count


def _links(section: PciSection) -> Iterator[Sample]:
    for link in section.links:
        yield from _fields(link, _LINK, (link.address, link.kind))


def _nfs(section: NfsSection) -> Iterator[Sample]:
    for mount in section.mounts:
        yield from _fields(mount, _EXPORT, (mount.export,))
        for one in mount.operations:
            yield from _fields(one, _NFS, (mount.export, one.operation))


def _lustre(section: LustreSection) -> Iterator[Sample]:
    for one in section.operations:
        labels = (one.file_system, one.component, one.operation)
        yield from _fields(one, _LUSTRE, labels)


_ABOUT: Final[dict[type, Callable[[Any], Iterator[Sample]]]] = {
    HostSection: _host,
    PressureSection: lambda section: _pressures("host", section.pressures, ()),
    BlockedSection: _blocked,
    ShmSection: _shm,
    CgroupSection: _cgroups,
    PlacementSection: _placements,
    WorkersSection: _trainers,
    DiskSection: _disks,
    NetworkSection: _interfaces,
    InfinibandSection: _ports,
    PciSection: _links,
    NfsSection: _nfs,
    LustreSection: _lustre,
}

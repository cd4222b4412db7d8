"""Quota, throttling, memory limit and pressure of the control groups in which training runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.collectors.absences import Absences
from pymon.collectors.identity import Place, place
from pymon.collectors.watching import Newest, no_snapshot, watched
from pymon.model.absence import Why
from pymon.model.cgroup import CgroupSection, CgroupUse
from pymon.model.host import Pressure
from pymon.sources.cgroup_paths import Group
from pymon.sources.cgroupfs import Cgroupfs, MemoryUse, Quota
from pymon.sources.process import Membership, Processes
from pymon.sources.procfs import PRESSURES

_GROUPS_MAX = 32  # a node's jobs and containers; beyond it the first by name


@dataclass(frozen=True, slots=True)
class CgroupCollector:
    """Gives one `CgroupSection`: each job's, container's or unit's group once, with the tightest limits above it.

    Source: /proc/PID/cgroup, and /sys/fs/cgroup of version 1, 2 or both.
    Cost: a read for each process, some fifteen for each group.
    Errors: a group that ends meanwhile, or that lies outside of the daemon's namespace, is counted with its reason; the
        host's top group is no job's and gives nothing. `SourceAbsent` where no process is watched.
    """

    name: ClassVar[str] = "cgroup"
    interval_s: ClassVar[float] = 10.0
    timeout_s: ClassVar[float] = 0.5
    processes: Processes = field(default_factory=Processes)
    cgroups: Cgroupfs = field(default_factory=Cgroupfs)
    newest: Newest = no_snapshot

    def collect(self) -> CgroupSection:
        """Read once."""
        absences = Absences()
        members: dict[str, tuple[Place, tuple[Membership, ...]]] = {}
        for who in watched(self.newest):
            memberships = absences.get("membership", self.processes.cgroup, who.pid)
            if memberships:
                found = place(memberships)
                members.setdefault(found.group_path, (found, memberships))
        if not members and not absences.all():
            raise SourceAbsent("no training process to look at")
        kept = sorted(members)[:_GROUPS_MAX]
        if left := len(members) - len(kept):
            absences.note("group", Why.TOO_MANY, f"{_GROUPS_MAX} groups at most", left)
        groups = (self._group(*members[path], absences) for path in kept)
        return CgroupSection(_named_apart([g for g in groups if g is not None]), absences.all())

    def _group(
        self, where: Place, memberships: tuple[Membership, ...], absences: Absences
    ) -> CgroupUse | None:
        def group(controller: str) -> Group | None:
            found = absences.get(controller, self.cgroups.group, memberships, controller)
            return None if found is None or self.cgroups.is_host(found) else found

        cpu, memory, cpuset = group("cpu"), group("memory"), group("cpuset")
        account = group("cpuacct") if cpu is not None and cpu.version == 1 else cpu
        if cpu is None and memory is None and cpuset is None:
            return None
        path = where.group_path
        quota = absences.get("quota", self.cgroups.quota, cpu) if cpu else None
        within = memory.ancestor(path) if memory else None
        use = absences.get("memory", self.cgroups.memory, within) if within else None
        time = account.ancestor(path) if account else None
        cpus = absences.get("cpuset", self.cgroups.cpuset, cpuset) if cpuset else None
        quota, use = quota or Quota(), use or MemoryUse()
        return CgroupUse(
            name=where.identity.group,
            quota_cpus=quota.cpus,
            periods_total=quota.periods,
            throttled_periods_total=quota.throttled_periods,
            throttled_s_total=quota.throttled_s,
            cpu_s_total=absences.get("cpu", self.cgroups.cpu_s, time) if time else None,
            cpuset_cpus=len(cpus) if cpus else None,
            memory_limit_bytes=use.limit_bytes,
            memory_used_bytes=use.used_bytes,
            memory_cache_bytes=use.cache_bytes,
            memory_anonymous_bytes=use.anonymous_bytes,
            memory_shared_bytes=use.shared_bytes,
            oom_kills_total=use.oom_kills,
            pressures=self._pressures(cpu.ancestor(path), absences) if cpu else (),
        )

    def _pressures(self, group: Group, absences: Absences) -> tuple[Pressure, ...]:
        if group.version == 1:
            return ()  # it has none, which is no trouble of this group
        told = {
            resource: absences.get("pressure", self.cgroups.pressure, group, resource)
            for resource in PRESSURES
        }
        return tuple(Pressure(resource, *times) for resource, times in told.items() if times)


def _named_apart(groups: list[CgroupUse]) -> tuple[CgroupUse, ...]:
    """One series for each name: a second group of the same name gives way to the first."""
    return tuple({group.name: group for group in reversed(groups)}.values())[::-1]

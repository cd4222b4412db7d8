"""What control groups allow the training processes, and what these use."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.model.absence import Absence
from pymon.model.host import Pressure
from pymon.model.snapshot import Section


@dataclass(frozen=True, slots=True)
class CgroupUse:
    """One job's, container's or unit's group. A limit is the tightest of the group and all above it, None: none."""

    name: str  # short and printable
    quota_cpus: float | None
    # Of the group that has the quota.
    periods_total: int | None
    throttled_periods_total: int | None
    throttled_s_total: float | None
    cpu_s_total: float | None
    cpuset_cpus: int | None  # processors that the group may run on
    memory_limit_bytes: int | None
    # Of the group that has the limit, else of the named one.
    memory_used_bytes: int | None
    memory_cache_bytes: int | None
    memory_anonymous_bytes: int | None
    memory_shared_bytes: (
        int | None
    )  # tmpfs and /dev/shm: charged to the group that touched them first
    oom_kills_total: int | None
    pressures: tuple[Pressure, ...]


@dataclass(frozen=True, slots=True)
class CgroupSection(Section):
    """Groups of the processes that are watched, each once."""

    groups: tuple[CgroupUse, ...]
    absent: tuple[Absence, ...] = ()

"""Control groups of version 1, version 2 and both at once, from `/sys/fs/cgroup`.

A limit of any group above counts, so each reading walks from the process's own group to the top.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources import files
from pymon.sources.cgroup_paths import CgroupPaths, Group
from pymon.sources.process import Membership
from pymon.sources.procfs import pressure
from pymon.sources.roots import Roots

_NO_LIMIT_BYTES = 1 << 62  # version 1 says 'none' with the largest number of pages there is
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Quota:
    """The tightest bound on processor time: `cpus` is None where there is none. Totals are of the group that has it."""

    cpus: float | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_s: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The tightest limit (None where there is none), and what that group holds; without a limit the given group."""

    limit_bytes: int | None = None
    used_bytes: int | None = None
    cache_bytes: int | None = None
    anonymous_bytes: int | None = None
    shared_bytes: int | None = None
    oom_kills: int | None = None


@dataclass(frozen=True, slots=True)
class OomCounts:
    """Of one group, since it was made; None where this kernel does not count it."""

    kills: int | None  # of its processes, by any out-of-memory killer
    limit_hits: int | None  # how often its memory reached its limit


@dataclass(frozen=True, slots=True)
class Cgroupfs:
    """Reads groups that `paths` finds. Raises as `files.read`."""

    paths: CgroupPaths = field(default_factory=lambda: CgroupPaths(Roots()))

    def group(self, memberships: Sequence[Membership], controller: str) -> Group:
        """As `CgroupPaths.group`."""
        return self.paths.group(memberships, controller)

    def is_host(self, group: Group) -> bool:
        """Whether it is the host's top group: it bounds nothing, and what it counts is no job's."""
        if group.folder != group.top:
            return False
        if group.version == 1:
            return os.path.exists(f"{group.folder}/release_agent")
        return not os.path.exists(f"{group.folder}/cgroup.events")

    def quota(self, group: Group) -> Quota:
        """By `cpu.max` or `cpu.cfs_quota_us`, and `cpu.stat`."""
        read = _quota_v2 if group.version == 2 else _quota_v1
        tightest, folder = _tightest(group, read)
        if tightest is None:
            return Quota()
        values = files.parsed(f"{folder}/cpu.stat", files.keyed)
        throttled_s = (
            values["throttled_usec"] / 1e6
            if "throttled_usec" in values
            else values["throttled_time"] / 1e9
            if "throttled_time" in values
            else None
        )
        return Quota(tightest, values.get("nr_periods"), values.get("nr_throttled"), throttled_s)

    def cpu_s(self, group: Group) -> float:
        """Processor time used; for version 1 the group must be that of `cpuacct`."""
        if group.version == 1:
            return files.number(f"{group.folder}/cpuacct.usage") / 1e9
        return files.parsed(
            f"{group.folder}/cpu.stat", lambda text: files.keyed(text)["usage_usec"] / 1e6
        )

    def cpuset(self, group: Group) -> frozenset[int]:
        """Processors that it may use, as the kernel works them out from all groups above."""
        name = "cpuset.cpus.effective" if group.version == 2 else "cpuset.effective_cpus"
        return files.parsed(f"{group.folder}/{name}", files.cpu_list)

    def memory(self, group: Group) -> MemoryUse:
        """By `memory.max` or `memory.limit_in_bytes`, and the group's `memory.stat`."""
        second = group.version == 2
        limit, folder = _tightest(group, _memory_limit_v2 if second else _memory_limit_v1)
        stat = files.parsed(f"{folder}/memory.stat", files.keyed)
        used = "memory.current" if second else "memory.usage_in_bytes"
        names = ("file", "anon", "shmem") if second else ("total_cache", "total_rss", "total_shmem")
        cache, anonymous, shared = (stat.get(name) for name in names)
        kills = _optional(lambda: files.parsed(_oom_file(folder, group.version), files.keyed))
        return MemoryUse(
            limit_bytes=None if limit is None else int(limit),
            used_bytes=_optional(lambda: files.number(f"{folder}/{used}")),
            cache_bytes=cache,
            anonymous_bytes=anonymous,
            shared_bytes=shared,
            oom_kills=kills.get("oom_kill") if kills else None,
        )

    def oom_counts(self, group: Group) -> OomCounts:
        """By `memory.events`, or `memory.oom_control` and `memory.failcnt`. Raises as `files.read`."""
        events = files.parsed(_oom_file(group.folder, group.version), files.keyed)
        if group.version == 2:
            return OomCounts(events.get("oom_kill"), events.get("max"))
        hits = _optional(lambda: files.number(f"{group.folder}/memory.failcnt"))
        return OomCounts(events.get("oom_kill"), None if hits is None else int(hits))

    def pressure(self, group: Group, resource: str) -> tuple[float, float | None]:
        """As `Procfs.pressure`, of the group; version 2 alone has it."""
        return files.parsed(f"{group.folder}/{resource}.pressure", pressure)


def _oom_file(folder: str, version: int) -> str:
    return f"{folder}/{'memory.events' if version == 2 else 'memory.oom_control'}"


def _tightest(group: Group, read: Callable[[str], float | None]) -> tuple[float | None, str]:
    """The lowest bound of the group and all above it, and the folder that has it; without one the group's own."""
    found: list[tuple[float, str]] = []
    for folder in group.upwards():
        try:
            bound = read(folder)
        except SourceAbsent as err:
            if isinstance(err, files.NotPermitted):
                raise
            continue  # the top has no such file
        if bound is not None:
            found.append((bound, folder))
    return min(found, key=lambda one: one[0]) if found else (None, group.folder)


def _quota_v2(folder: str) -> float | None:
    def parse(text: str) -> float | None:
        quota, period = text.split()
        return None if quota == "max" else _share(int(quota), int(period))

    return files.parsed(f"{folder}/cpu.max", parse)


def _quota_v1(folder: str) -> float | None:
    quota = files.number(f"{folder}/cpu.cfs_quota_us")
    return None if quota < 0 else _share(quota, files.number(f"{folder}/cpu.cfs_period_us"))


def _share(quota_us: int, period_us: int) -> float:
    if quota_us <= 0 or period_us <= 0:
        raise SourceFailed(f"a quota of {quota_us} µs in {period_us} µs")
    return quota_us / period_us


def _memory_limit_v2(folder: str) -> float | None:
    return files.parsed(
        f"{folder}/memory.max", lambda text: None if text.strip() == "max" else int(text)
    )


def _memory_limit_v1(folder: str) -> float | None:
    limit = files.number(f"{folder}/memory.limit_in_bytes")
    return None if limit >= _NO_LIMIT_BYTES else limit


def _optional(read: Callable[[], ValueT | None]) -> ValueT | None:
    """What the top group or an older kernel may lack."""
    try:
        return read()
    except (SourceAbsent, SourceFailed):
        return None

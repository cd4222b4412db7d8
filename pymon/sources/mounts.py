"""What clients of network file systems count: NFS in `/proc/self/mountstats`, Lustre in `/sys/kernel/debug/lustre`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources import files
from pymon.sources.roots import Roots

_WRAPPED = (
    1 << 63
)  # the kernel subtracts clocks here, and a step back becomes a number as large as that
_TARGET = re.compile(
    r"(.+)-(?:MDT|OST)[0-9a-f]{4}-"
)  # of mdc and osc; llite has FILESYSTEM-INSTANCE
_LUSTRE_SECONDS = {"[usec]": 1e-6, "[usecs]": 1e-6}


@dataclass(frozen=True, slots=True)
class NfsOperation:
    """Since the mount; None is what the kernel's clocks spoilt."""

    name: str
    requests: int
    transmissions: int
    timeouts: int
    queue_s: float | None
    response_s: float | None  # from sending to the answer
    total_s: float | None


@dataclass(frozen=True, slots=True)
class NfsMount:
    """One export; the bytes are those that went over the network."""

    export: str
    read_bytes: int | None
    written_bytes: int | None
    operations: tuple[NfsOperation, ...]


@dataclass(frozen=True, slots=True)
class LustreOperation:
    """Of one folder of counters: how often, and how long in all (None where it is not timed)."""

    name: str
    count: int
    total_s: float | None


@dataclass(frozen=True, slots=True)
class LustreClient:
    """`component` is llite (what programs ask for), mdc or osc (requests to metadata and object servers)."""

    file_system: str
    component: str
    operations: tuple[LustreOperation, ...]


def nfs_mounts(text: str) -> tuple[list[NfsMount], int]:
    """Each export once, however often it is mounted, from mountstats; and how many were not as the kernel writes."""
    found: dict[str, NfsMount] = {}
    odd = 0
    for block in f"\n{text}".split("\ndevice ")[1:]:
        head, *body = files.lines(block)
        export, _, rest = head.partition(" mounted on ")
        kind = rest.rpartition(" with fstype ")[2].split(" ")[0]
        if kind not in ("nfs", "nfs4") or export in found:
            continue
        try:
            found[export] = _nfs_mount(export, body)
        except (ValueError, IndexError):
            odd += 1
    return list(found.values()), odd


def _nfs_mount(export: str, body: list[str]) -> NfsMount:
    read_bytes = written_bytes = None
    operations = []
    per_operation = False
    for line in body:
        name, colon, rest = line.strip().partition(":")
        if name == "per-op statistics":
            per_operation = True
        elif name == "bytes":
            read_bytes, written_bytes = (int(field) for field in rest.split()[4:6])
        elif per_operation and colon:
            counts = [int(field) for field in rest.split()]
            times = [None if ms >= _WRAPPED else ms / 1e3 for ms in counts[5:8]]
            requests, transmissions, timeouts = counts[:3]
            queue_s, response_s, total_s = times
            operations.append(
                NfsOperation(name, requests, transmissions, timeouts, queue_s, response_s, total_s)
            )
    return NfsMount(export, read_bytes, written_bytes, tuple(operations))


@dataclass(frozen=True, slots=True)
class Lustre:
    """Counters lie in debugfs since Lustre 2.12, which root alone may enter, and in /proc/fs before."""

    roots: Roots

    def folders(self, component: str) -> list[str]:
        """One for each mount or server. Raises SourceAbsent (NotPermitted) where there are none."""
        bases = (f"{self.roots.sys}/kernel/debug/lustre", f"{self.roots.proc}/fs/lustre")
        denied: SourceAbsent | None = None
        for base in bases:
            try:
                return [f"{base}/{component}/{name}" for name in files.names(f"{base}/{component}")]
            except files.NotPermitted as err:
                denied = err
            except SourceAbsent:
                continue
        # debugfs is closed to most whether or not Lustre is in it; its own folder in sysfs is open to all.
        if denied is not None and _loaded(self.roots):
            raise denied
        raise SourceAbsent("no Lustre client here")

    def client(self, folder: str, component: str) -> LustreClient:
        """The folder's `stats`."""
        name = folder.rpartition("/")[2]
        target = _TARGET.match(name)
        file_system = target[1] if target else name.rpartition("-")[0] or name
        return LustreClient(file_system, component, files.parsed(f"{folder}/stats", _lustre))


def _loaded(roots: Roots) -> bool:
    try:
        return bool(files.names(f"{roots.sys}/fs/lustre"))
    except (SourceAbsent, SourceFailed):
        return False


def _lustre(text: str) -> tuple[LustreOperation, ...]:
    """Lines of `NAME COUNT samples [UNIT] MIN MAX SUM SUMSQ`; a counted one ends after its unit."""
    found = []
    for line in files.lines(text):
        name, *fields = line.split()
        if len(fields) < 3 or fields[1] != "samples":
            continue  # snapshot_time
        scale = _LUSTRE_SECONDS.get(fields[2])
        total_s = int(fields[5]) * scale if scale and len(fields) > 5 else None
        found.append(LustreOperation(name, int(fields[0]), total_s))
    return tuple(found)

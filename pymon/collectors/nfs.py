"""How long NFS servers take to answer, as their client counts it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.base.printable import printable
from pymon.collectors.absences import Absences
from pymon.model.absence import Why
from pymon.model.host import NfsMount, NfsOperation, NfsSection
from pymon.sources import nfs
from pymon.sources.proc_devices import ProcDevices

_MOUNTS_MAX = 16
# What data sets and checkpoints are made of; all others together are `other`.
_OPERATIONS = ("READ", "WRITE", "COMMIT", "OPEN", "LOOKUP", "GETATTR", "READDIR")
_SAME = {"READDIRPLUS": "READDIR", "OPEN_NOATTR": "OPEN"}


@dataclass(frozen=True, slots=True)
class NfsCollector:
    """Gives one `NfsSection`: each export once, with requests and their time by kind, since the mount.

    Source: /proc/1/mountstats where the daemon may read it (root), else that of its own namespace. Answered by the
        kernel from memory: a server that hangs holds up no reading.
    Cost: one read, of 4 KiB for each NFS mount.
    Errors: `SourceAbsent` where nothing of NFS is mounted; a mount whose lines are odd is counted and left out, and so
        are times that the kernel's clocks spoilt.
    """

    name: ClassVar[str] = "nfs"
    interval_s: ClassVar[float] = 10.0
    timeout_s: ClassVar[float] = 0.5
    devices: ProcDevices = field(default_factory=ProcDevices)

    def collect(self) -> NfsSection:
        """Read once."""
        absences = Absences()
        told, odd = nfs.nfs_mounts(self.devices.mountstats())
        if odd:
            absences.note("mount", Why.UNREADABLE, "mountstats is not as the kernel writes it", odd)
        elif not told:
            raise SourceAbsent("no NFS mount here")
        if (left := len(told) - _MOUNTS_MAX) > 0:
            absences.note("mount", Why.TOO_MANY, f"{len(told)} mounts", left)
        return NfsSection(tuple(_mount(one) for one in told[:_MOUNTS_MAX]), absences.all())


def _mount(told: nfs.NfsMount) -> NfsMount:
    return NfsMount(
        printable(told.export, 128),
        told.read_bytes,
        told.written_bytes,
        tuple(_operations(told.operations)),
    )


def _operations(told: Iterable[nfs.NfsOperation]) -> Iterator[NfsOperation]:
    """By kind, the seldom ones together; kinds that were never asked for are left out."""
    kinds: dict[str, list[nfs.NfsOperation]] = {}
    for one in told:
        name = _SAME.get(one.name, one.name)
        if one.requests:
            kinds.setdefault(name if name in _OPERATIONS else "other", []).append(one)
    for kind, same in sorted(kinds.items()):
        yield NfsOperation(
            operation=kind.lower(),
            requests_total=sum(one.requests for one in same),
            retransmissions_total=sum(max(0, one.transmissions - one.requests) for one in same),
            timeouts_total=sum(one.timeouts for one in same),
            response_s_total=_sum(one.response_s for one in same),
            request_s_total=_sum(one.total_s for one in same),
        )


def _sum(values: Iterable[float | None]) -> float | None:
    """None where one of them is: a sum without it would fall."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)

"""How long Lustre takes, as its client counts it: for programs (llite), and for its servers to answer (mdc, osc)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.base.printable import printable
from pymon.collectors.absences import Absences
from pymon.model.host import LustreOperation, LustreSection
from pymon.sources.lustre import Lustre
from pymon.sources.roots import Roots

_REQUESTS = {"req_waittime": "request"}  # from sending a request to its answer
# What data sets and checkpoints are made of; servers are many, so of theirs the wait alone.
_OPERATIONS = {
    "llite": {
        "read": "read",  # calls, timed since Lustre 2.13
        "write": "write",
        "open": "open",
        "close": "close",
        "getattr": "getattr",
        "readdir": "readdir",
        "fsync": "fsync",
    },
    "mdc": _REQUESTS,
    "osc": _REQUESTS,
}


Key = tuple[str, str, str]  # file system, component, operation


@dataclass(frozen=True, slots=True)
class LustreCollector:
    """Gives one `LustreSection`: operations and their time by file system, component and kind, since the mount.

    Source: {llite,mdc,osc}/*/stats below /sys/kernel/debug/lustre (2.12 and newer) or /proc/fs/lustre.
    Cost: one read for each mount and each server: some hundred on large file systems.
    Errors: `SourceAbsent` where there is no Lustre; since 2.12 its counters are root's alone, which is then the reason.
    """

    name: ClassVar[str] = "lustre"
    interval_s: ClassVar[float] = 10.0
    timeout_s: ClassVar[float] = 0.8
    lustre: Lustre = field(default_factory=lambda: Lustre(Roots()))

    def collect(self) -> LustreSection:
        """Read once."""
        absences = Absences()
        totals: dict[Key, tuple[int, float | None]] = {}
        for component in _OPERATIONS:
            totals |= self._component(component, absences)
        if not totals:
            reasons = absences.all()
            raise SourceAbsent(reasons[0].example if reasons else "no Lustre client here")
        return LustreSection(
            tuple(
                LustreOperation(printable(system), component, operation, count, total_s)
                for (system, component, operation), (count, total_s) in sorted(totals.items())
            ),
            absences.all(),
        )

    def _component(self, component: str, absences: Absences) -> dict[Key, tuple[int, float | None]]:
        """Sums over the mounts or servers; nothing where one cannot be read: without it the sums would fall."""
        totals: dict[Key, tuple[int, float | None]] = {}
        for folder in absences.get(component, self.lustre.folders, component) or ():
            client = absences.get("stats", self.lustre.client, folder, component)
            if client is None:
                return {}
            for told in client.operations:
                if (operation := _OPERATIONS[component].get(told.name)) is None:
                    continue
                key = (client.file_system, component, operation)
                count, total_s = totals.get(key, (0, 0.0))
                known = total_s is not None and told.total_s is not None
                both_s = (total_s or 0.0) + (told.total_s or 0.0) if known else None
                totals[key] = (count + told.count, both_s)
        return totals

"""What the Lustre client counts, in `/sys/kernel/debug/lustre`, or in `/proc/fs/lustre` before 2.12."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources import files
from pymon.sources.roots import Roots

_TARGET = re.compile(
    r"(.+)-(?:MDT|OST)[0-9a-f]{4}-"
)  # of mdc and osc; llite has FILESYSTEM-INSTANCE
_SECONDS = {"[usec]": 1e-6, "[usecs]": 1e-6}


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
        return LustreClient(file_system, component, files.parsed(f"{folder}/stats", _operations))


def _loaded(roots: Roots) -> bool:
    try:
        return bool(files.names(f"{roots.sys}/fs/lustre"))
    except (SourceAbsent, SourceFailed):
        return False


def _operations(text: str) -> tuple[LustreOperation, ...]:
    """Lines of `NAME COUNT samples [UNIT] MIN MAX SUM SUMSQ`; a counted one ends after its unit."""
    found = []
    for line in files.lines(text):
        name, *fields = line.split()
        if len(fields) < 3 or fields[1] != "samples":
            continue  # snapshot_time
        scale = _SECONDS.get(fields[2])
        total_s = int(fields[5]) * scale if scale and len(fields) > 5 else None
        found.append(LustreOperation(name, int(fields[0]), total_s))
    return tuple(found)

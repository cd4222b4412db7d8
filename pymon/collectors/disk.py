"""Reads and writes of the node's disks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.base.printable import printable
from pymon.collectors.absences import Absences
from pymon.collectors.rising import Rising
from pymon.model.absence import Why
from pymon.model.host import Disk, DiskSection
from pymon.sources.proc_devices import ProcDevices
from pymon.sources.sysfs import Sysfs

_DISKS_MAX = 32


@dataclass(frozen=True, slots=True)
class DiskCollector:
    """Gives one `DiskSection`: devices with hardware behind them, so that no byte is counted twice.

    Source: /proc/diskstats, and /sys/block for what is a disk.
    Cost: one read, and one look for each block device.
    Errors: `SourceAbsent` where there is no such device, as on diskless nodes.
    """

    name: ClassVar[str] = "disk"
    interval_s: ClassVar[float] = 10.0
    timeout_s: ClassVar[float] = 0.5
    devices: ProcDevices = field(default_factory=ProcDevices)
    sysfs: Sysfs = field(default_factory=Sysfs)
    _rising: Rising = field(default_factory=Rising)

    def collect(self) -> DiskSection:
        """Read once."""
        absences = Absences()
        told = [disk for disk in self.devices.disks() if self.sysfs.is_disk(disk.name)]
        if not told:
            raise SourceAbsent("no disk here")
        if (left := len(told) - _DISKS_MAX) > 0:
            absences.note("disk", Why.TOO_MANY, f"{len(told)} disks", left)
        disks = []
        for disk in told[:_DISKS_MAX]:

            def held(field_name: str, value: float, name: str = disk.name) -> float:
                return self._rising.hold((name, field_name), value)

            disks.append(
                Disk(
                    device=printable(disk.name),
                    reads_total=int(held("reads", disk.reads)),
                    read_bytes_total=int(held("read_bytes", disk.read_bytes)),
                    read_s_total=held("read_ms", disk.read_ms) / 1e3,
                    writes_total=int(held("writes", disk.writes)),
                    written_bytes_total=int(held("written_bytes", disk.written_bytes)),
                    write_s_total=held("write_ms", disk.write_ms) / 1e3,
                    busy_s_total=held("busy_ms", disk.busy_ms) / 1e3,
                )
            )
        self._rising.forget_unseen()
        return DiskSection(tuple(disks), absences.all())

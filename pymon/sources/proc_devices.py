"""Disks, network interfaces and mounts of the node, from `/proc`; `root` as in `procfs`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pymon.base.errors import SourceAbsent
from pymon.sources import files

_SECTOR_BYTES = (
    512  # of diskstats, whatever the device's own are (Documentation/admin-guide/iostats)
)


@dataclass(frozen=True, slots=True)
class Disk:
    """A line of /proc/diskstats, since boot or since the device came; milliseconds as the kernel counts them."""

    name: str
    reads: int
    read_bytes: int
    read_ms: int
    writes: int
    written_bytes: int
    write_ms: int
    busy_ms: int


@dataclass(frozen=True, slots=True)
class Interface:
    """A line of /proc/net/dev, since the interface came."""

    name: str
    receive_bytes: int
    receive_errors: int
    receive_drops: int
    transmit_bytes: int
    transmit_errors: int
    transmit_drops: int


@dataclass(frozen=True, slots=True)
class ProcDevices:
    """Reads below `root`. Raises as `files.read`, SourceFailed where a file is not as the kernel writes it."""

    root: str | Path = "/proc"

    def disks(self) -> tuple[Disk, ...]:
        """Every block device, partitions and virtual ones included."""
        return files.parsed(f"{self.root}/diskstats", _disks)

    def interfaces(self) -> tuple[Interface, ...]:
        """Of the first process's network namespace, which is the host's where its processes can be seen."""
        for path in (f"{self.root}/1/net/dev", f"{self.root}/net/dev"):
            try:
                return files.parsed(path, _interfaces)
            except SourceAbsent as err:
                absent = err
        raise absent

    def mountstats(self) -> str:
        """Of the first process's mounts where that may be read, else of the daemon's own."""
        for path in (f"{self.root}/1/mountstats", f"{self.root}/self/mountstats"):
            try:
                return files.read(path)
            except SourceAbsent as err:
                absent = err
        raise absent


def _disks(text: str) -> tuple[Disk, ...]:
    disks = []
    for line in files.lines(text):
        _, _, name, *fields = line.split()
        reads, _, read_sectors, read_ms, writes, _, written_sectors, write_ms, _, busy_ms = (
            int(field) for field in fields[:10]
        )
        read_bytes, written_bytes = read_sectors * _SECTOR_BYTES, written_sectors * _SECTOR_BYTES
        disks.append(
            Disk(name, reads, read_bytes, read_ms, writes, written_bytes, write_ms, busy_ms)
        )
    return tuple(disks)


def _interfaces(text: str) -> tuple[Interface, ...]:
    interfaces = []
    for line in files.lines(text)[2:]:
        name, colon, rest = line.rpartition(":")
        if not colon:
            raise ValueError(line[:40])
        fields = [int(field) for field in rest.split()]
        interfaces.append(
            Interface(
                name.strip(), *(fields[i] for i in (0, 2, 3)), *(fields[i] for i in (8, 10, 11))
            )
        )
    return tuple(interfaces)

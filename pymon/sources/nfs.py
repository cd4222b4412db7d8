"""What the NFS client counts, in `/proc/self/mountstats`."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.sources import files

# The kernel subtracts clocks here, and a step back becomes a number as large as that.
_WRAPPED = 1 << 63


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

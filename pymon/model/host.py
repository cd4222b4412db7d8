"""What the node knows about itself. Totals are the kernel's, since boot or since the device came."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.model.absence import Absence
from pymon.model.snapshot import Section


@dataclass(frozen=True, slots=True)
class HostSection(Section):
    """Processors and memory of the host; what a cgroup allows is in `CgroupSection`."""

    cpu_count: int
    cpu_busy_ratio: float | None  # since the previous reading; None on the first
    memory_total_bytes: int
    memory_available_bytes: int
    cpu_s_total: tuple[tuple[str, float], ...] = ()  # by mode
    processes_blocked: int | None = None  # waiting for I/O now
    memory_free_bytes: int | None = None
    memory_cached_bytes: int | None = None  # the page cache, tmpfs and /dev/shm included
    memory_buffers_bytes: int | None = None
    memory_shared_bytes: int | None = None  # tmpfs and /dev/shm
    memory_dirty_bytes: int | None = None
    memory_writeback_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    swap_in_bytes_total: int | None = None
    swap_out_bytes_total: int | None = None
    major_faults_total: int | None = None
    oom_kills_total: int | None = None
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessShm:
    """`/dev/shm` as one process sees it. Without the right to look inside, its size alone may be known."""

    pid: int
    rank: int | None
    job_id: str
    shared: bool  # it is the daemon's own /dev/shm
    total_bytes: int
    used_bytes: int | None
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class ShmSection(Section):
    """The daemon's own `/dev/shm` as statvfs tells it, and that of each training process's mount namespace."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    processes: tuple[ProcessShm, ...] = ()
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class Pressure:
    """Time in which some, and in which all that were not idle, waited for a resource (PSI)."""

    resource: str  # cpu, memory, io
    waiting_s_total: float
    stalled_s_total: float | None


@dataclass(frozen=True, slots=True)
class PressureSection(Section):
    """Of the whole host."""

    pressures: tuple[Pressure, ...]
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    """A whole block device."""

    device: str
    reads_total: int
    read_bytes_total: int
    read_s_total: float
    writes_total: int
    written_bytes_total: int
    write_s_total: float
    busy_s_total: float


@dataclass(frozen=True, slots=True)
class DiskSection(Section):
    """Devices with hardware behind them."""

    disks: tuple[Disk, ...]
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface; `speed_bytes_per_s` None where the link is down or has none."""

    device: str
    receive_bytes_total: int
    receive_errors_total: int
    receive_drops_total: int
    transmit_bytes_total: int
    transmit_errors_total: int
    transmit_drops_total: int
    speed_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class NetworkSection(Section):
    """Interfaces with hardware behind them."""

    interfaces: tuple[Interface, ...]
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class InfinibandPort:
    """A port of an InfiniBand or RoCE device; what its driver does not count is None."""

    device: str
    port: str
    active: bool
    rate_bytes_per_s: float | None
    receive_bytes_total: int | None
    transmit_bytes_total: int | None
    transmit_wait_ticks_total: (
        int | None
    )  # ticks of the port in which it had data and no credit to send
    errors_total: tuple[tuple[str, int], ...]  # by kind


@dataclass(frozen=True, slots=True)
class InfinibandSection(Section):
    """All ports."""

    ports: tuple[InfinibandPort, ...]
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class PciLink:
    """The link of a GPU, NVMe drive or network card. An idle GPU lowers its generation to save power, never width."""

    address: str
    kind: str
    width: int | None  # lanes
    width_max: int | None
    generation: int | None
    generation_max: int | None


@dataclass(frozen=True, slots=True)
class PciSection(Section):
    """Links of the devices that training depends on."""

    links: tuple[PciLink, ...]
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockedProcess:
    """A process in uninterruptible sleep (state D)."""

    pid: int
    name: str  # made printable
    blocked_s: float  # since it was first seen so without having run in between


@dataclass(frozen=True, slots=True)
class BlockedSection(Section):
    """Processes in state D: `seen` at this look, `stuck` those of them that were at the look before and ran no more."""

    seen: int
    stuck: int
    processes: tuple[BlockedProcess, ...]  # the stuck ones, longest first, bounded
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class NfsOperation:
    """One kind of request of an export. Response is the network and the server, the total has queueing beside."""

    operation: str
    requests_total: int
    retransmissions_total: int
    timeouts_total: int
    response_s_total: float | None
    request_s_total: float | None


@dataclass(frozen=True, slots=True)
class NfsMount:
    """One export, however often it is mounted."""

    export: str
    read_bytes_total: int | None  # over the network
    written_bytes_total: int | None
    operations: tuple[NfsOperation, ...]


@dataclass(frozen=True, slots=True)
class NfsSection(Section):
    """NFS mounts of the host, or of the daemon's own namespace where it may not look at the host's."""

    mounts: tuple[NfsMount, ...]
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class LustreOperation:
    """`component` is llite (what programs ask for), mdc or osc (requests to servers, those of one kind summed)."""

    file_system: str
    component: str
    operation: str
    operations_total: int
    spent_s_total: float | None  # None where Lustre does not time it


@dataclass(frozen=True, slots=True)
class LustreSection(Section):
    """Clients of Lustre file systems."""

    operations: tuple[LustreOperation, ...]
    absent: tuple[Absence, ...] = ()

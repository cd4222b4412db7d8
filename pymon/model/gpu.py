"""What the node knows about its GPUs, by NVML. What a GPU does not tell is None or left out, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pymon.model.snapshot import Section


class GpuState(Enum):
    """How a GPU answers the driver's library."""

    OK = "ok"
    LOST = "lost"  # fell off the bus (GPU_IS_LOST)
    RESET_REQUIRED = "reset_required"
    HUNG = "hung"  # a call about it does not return
    NO_PERMISSION = "no_permission"
    REMOVED = "removed"  # was here once, and is not listed any more
    UNKNOWN = "unknown"  # nothing can be asked now, an error without a meaning, or not read lately


class DriverState(Enum):
    """How the driver's library answers."""

    OK = "ok"
    STARTING = "starting"  # nvmlInit is under way
    NO_LIBRARY = "no_library"
    NO_DRIVER = "no_driver"
    VERSION_MISMATCH = (
        "version_mismatch"  # library and kernel module differ: an upgrade without a restart
    )
    NO_PERMISSION = "no_permission"
    HUNG = "hung"  # a call about no single GPU does not return
    RELEASED = "released"  # let go on request, for an upgrade
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """What does not change while the driver runs. `unified_memory`: it reports none of its own (GB10, Jetson)."""

    uuid: str
    name: str
    pci_bus_id: str
    serial: str
    unified_memory: bool
    mig_enabled: bool


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """`size = used + free + reserved`; `reserved_bytes` is the driver's own and None on drivers without it."""

    size_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """GPM's averages over the window between two readings; Hopper and newer."""

    window_s: float
    graphics_active_ratio: float | None = None
    sm_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    tensor_active_ratio: float | None = None
    dram_active_ratio: float | None = None
    fp64_active_ratio: float | None = None
    fp32_active_ratio: float | None = None
    fp16_active_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """NVLink payload since the driver was loaded; `link` is empty for the sum of all links."""

    link: str
    transmit_bytes_total: int
    receive_bytes_total: int


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A GPU instance of a GPU that is cut into some."""

    uuid: str
    gpu_instance_id: int
    compute_instance_id: int
    profile: str
    memory: GpuMemory | None
    activity: GpuActivity | None


@dataclass(frozen=True, slots=True)
class FastReadings:
    """What is read at each tick."""

    utilization_ratio: float | None = (
        None  # share of the driver's last window in which a kernel ran
    )
    memory_utilization_ratio: float | None = None  # in which memory was read or written
    memory: GpuMemory | None = None
    power_w: float | None = None  # now
    energy_j_total: float | None = None
    clocks_event_s_total: tuple[tuple[str, float], ...] = ()  # by reason
    pcie_transmit_bytes_total: int | None = None  # from the GPU
    pcie_receive_bytes_total: int | None = None
    pcie_replays_total: int | None = None
    nvlink: tuple[LinkBytes, ...] = ()
    activity: GpuActivity | None = None
    mig: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has a context on the GPU, by the driver's pid: that of the host's namespace."""

    pid: int
    memory_bytes: int | None
    gpu_instance_id: int | None = None
    sm_utilization_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class EccCount:
    """`severity` is corrected or uncorrected, `scope` volatile (since the driver was loaded) or aggregate."""

    severity: str
    scope: str
    location: str
    errors_total: int


@dataclass(frozen=True, slots=True)
class SlowReadings:
    """What is read each ten seconds."""

    power_average_w: float | None = None  # over the last second
    power_limits_w: tuple[tuple[str, float], ...] = ()  # by kind
    clocks_hz: tuple[tuple[str, float], ...] = ()  # by domain
    clocks_event_active: tuple[tuple[str, bool], ...] = ()  # by reason
    temperatures_celsius: tuple[tuple[str, float], ...] = ()  # by sensor
    ecc: tuple[EccCount, ...] = ()
    remapped_rows_total: tuple[tuple[str, int], ...] = ()  # by cause
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    recovery_action: int | None = None  # nvmlGpuRecoveryAction: 0 none .. 7 system reboot
    fabric_state: int | None = None  # nvmlGpuFabricState: 1 not started, 2 in progress, 3 completed
    fabric_status: int | None = None  # nvmlReturn_t of the completed registration
    nvlink_errors_total: tuple[tuple[str, str, int], ...] = ()  # by link and kind
    processes: tuple[GpuProcess, ...] | None = None  # None: could not be read


@dataclass(frozen=True, slots=True)
class XidCount:
    """A kind of driver error on one GPU, since the daemon began. `xid` is the driver's number, 999 an unknown one."""

    xid: int
    events_total: int
    last_real_s: float


@dataclass(frozen=True, slots=True)
class SxidCount:
    """A kind of error of an NVSwitch, since the daemon began. `severity` is fatal or non_fatal, by its driver."""

    pci_bus_id: str
    sxid: int
    severity: str
    events_total: int
    last_real_s: float


@dataclass(frozen=True, slots=True)
class XidSection(Section):
    """Driver errors that the kernel's log told of, each with the GPU's PCI address as in `GpuIdentity`."""

    events: tuple[tuple[str, XidCount], ...]
    switch_events: tuple[SxidCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Readings that are too old to stand for now are None."""

    index: int
    uuid: str
    state: GpuState
    reason: str = ""
    identity: GpuIdentity | None = None  # None where it never answered
    fast: FastReadings | None = None
    slow: SlowReadings | None = None
    last_reading_real_s: float | None = None
    xids: tuple[XidCount, ...] = ()
    invalid_total: tuple[tuple[str, int], ...] = ()  # readings dropped as impossible, by reason


@dataclass(frozen=True, slots=True)
class NvmlCost:
    """What asking the driver took and how it went, since the daemon began."""

    spent_s_total: float
    calls_total: int
    errors_total: tuple[tuple[str, str, int], ...]  # by function and code
    hangs_total: tuple[tuple[str, int], ...]  # by function
    workers_total: int
    workers_stuck: int


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's library; `double` where it is a test's."""

    state: DriverState
    reason: str = ""
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: str = ""
    double: bool = False
    watches_xids: bool = False


@dataclass(frozen=True, slots=True)
class GpuSection(Section):
    """Every GPU seen once, those that do not answer included, by index."""

    gpus: tuple[Gpu, ...]
    driver: Driver
    cost: NvmlCost

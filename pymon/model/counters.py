"""What one burst of hardware counters came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CounterBurst:
    """Means over the burst, of the whole GPU that `pid` trains on; None is what its chip does not count.

    From CUPTI's PM sampling (csrc/gpu/pm_metrics.h names its metrics); the clocks before and after are NVML's.
    """

    pid: int
    device: str
    chip: str
    duration_s: float
    samples_total: int
    samples_lost: int  # that are missing between two others
    overflows: int  # times that the buffer on the GPU ran full
    sm_active_ratio: float | None = None
    tensor_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    dram_active_ratio: float | None = None
    dram_bytes_per_s: float | None = None
    pcie_read_bytes_per_s: float | None = None
    pcie_write_bytes_per_s: float | None = None
    nvlink_received_bytes_per_s: float | None = None
    nvlink_sent_bytes_per_s: float | None = None
    sm_clock_hz: float | None = None  # while the burst ran: it locks the clocks
    sm_clock_before_hz: float | None = None
    sm_clock_after_hz: float | None = None

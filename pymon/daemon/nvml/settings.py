"""What the configuration says of NVML."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NvmlSettings:
    """`call_timeout_s`: NVML's calls take microseconds to 20 ms, some seconds are a hang. `init_timeout_s`: without
    persistence mode the first nvmlInit brings every GPU up. `library`: a test's double instead of the driver's."""

    call_timeout_s: float = 2.0
    init_timeout_s: float = 30.0
    slow_s: float = 10.0
    per_link: bool = False
    process_utilization: bool = False
    library: str = ""

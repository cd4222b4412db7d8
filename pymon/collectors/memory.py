"""The page's section of memory -> the model."""

from __future__ import annotations

from pymon.collectors.gpu_work import MAX_COUNT
from pymon.collectors.trend import Trends
from pymon.link.memory_section import AllocatorSample, MemorySample
from pymon.model.memory import AllocatorUse, HostUse, ProcessMemory

DEVICES_MAX = 128  # C10_COMPILE_TIME_MAX_GPUS, torch's own bound of an index


def memory(
    sample: MemorySample | None, now_ns: int, trends: Trends | None = None, step: int = 0
) -> ProcessMemory | None:
    """The section as it stands at `now_ns` (mono), where the process has made `step` steps; `trends` remembers it."""
    if sample is None:
        return None
    trends = trends or Trends()
    by_device = {allocator.device: allocator for allocator in sample.allocators}
    host = {name: min(value, MAX_COUNT) for name, (value, _) in sample.host.items()}
    return ProcessMemory(
        allocators=tuple(_allocator(one, now_ns, trends) for one in by_device.values()),
        host=HostUse(
            **host, rss_slope_bytes=trends.note("rss", step, host.get("rss_bytes"), now_ns)
        ),
    )


def memory_lie(sample: MemorySample | None) -> str:
    """Why this cannot be; empty where it can."""
    for one in sample.allocators if sample is not None else ():
        if one.device >= DEVICES_MAX:
            return f"it names CUDA device {one.device:,}, more than torch can have"
        for name, value in one.values.items():
            if value > MAX_COUNT:
                return f"{name} of CUDA device {one.device} is {value:,}, more than can be"
    for name, (value, _) in sample.host.items() if sample is not None else ():
        if value > MAX_COUNT:
            return f"{name} is {value:,}, more than can be"
    return ""


def _allocator(one: AllocatorSample, now_ns: int, trends: Trends) -> AllocatorUse:
    values = {name: min(value, MAX_COUNT) for name, value in one.values.items()}

    def slope(of: str) -> float | None:
        return trends.note(f"{one.device} {of}", one.step, values.get(of), now_ns)

    return AllocatorUse(
        device=min(one.device, MAX_COUNT),
        uuid=one.uuid,
        step=min(one.step, MAX_COUNT),
        age_s=max(0, now_ns - one.read_mono_ns) / 1e9,
        allocated_slope_bytes=slope("allocated_bytes"),
        reserved_slope_bytes=slope("reserved_bytes"),
        **values,
    )

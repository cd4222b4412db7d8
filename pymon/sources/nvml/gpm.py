"""GPM: what the streaming multiprocessors did between two samples, on whole GPUs and on MIG instances.

Needs Hopper or newer; no CUDA context, no lock of the clocks, and it does not exclude profilers. Samples of several
GPUs taken in parallel have crashed the library (gpud's gpm.go): there is one thread here.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from pymon.model.gpu import GpuActivity
from pymon.sources.nvml.device import Device
from pymon.sources.nvml.library import CallFailed, DriverAway, GpuGone, Library
from pymon.sources.nvml.plausible import PCIE_MAX_BYTES_S

WINDOW_MIN_S: Final = 0.1  # nvml.h: two samples must be more than 100 ms apart
# Attribute of GpuActivity by GPM metric; all in percent.
METRICS: Final = {
    1: "graphics_active_ratio",
    2: "sm_active_ratio",
    3: "sm_occupancy_ratio",
    5: "tensor_active_ratio",
    10: "dram_active_ratio",
    11: "fp64_active_ratio",
    12: "fp32_active_ratio",
    13: "fp16_active_ratio",
}
PCIE: Final = {20: "transmit", 21: "receive"}  # in MiB/s over the window
_NUMBERS: Final = (*METRICS, *PCIE)


def _metrics() -> Any:
    """19 KB, of which the driver reads what `numMetrics` says: made once."""
    metrics = pynvml.c_nvmlGpmMetricsGet_t()
    metrics.version, metrics.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_NUMBERS)
    for place, number in enumerate(_NUMBERS):
        metrics.metrics[place].metricId = number
    return metrics


_METRICS = _metrics()
# nvmlGpmMetric_t: id, return code, value, three pointers to texts. Taken from memory as it is, as in `fields`.
_METRIC = struct.Struct("<4xId24x")
_FIRST = type(_METRICS).metrics.offset
_VALUES = memoryview(_METRICS).cast("B")[_FIRST : _FIRST + len(_NUMBERS) * _METRIC.size]


@dataclass(slots=True)
class _Samples:
    """Two samples, the newer first; the older one's memory takes the next."""

    newer: Any
    older: Any
    taken_s: float | None = None
    last: GpuActivity | None = None  # stands for ticks that come too soon after it


@dataclass(slots=True)
class Gpm:
    """The samples of one GPU and its instances. `read` gives None for the first time and where GPM is not supported."""

    library: Library
    # What went over PCIe since the first sample, for GPUs without byte counters of their own: the windows are seamless.
    pcie_bytes: dict[str, float] = field(default_factory=dict)
    _supported: bool | None = None
    _samples: dict[int | None, _Samples] = field(default_factory=dict)

    def read(self, device: Device, gpu_instance_id: int | None = None) -> GpuActivity | None:
        """Averages since the last time. Raises DriverAway and GpuGone."""
        if self._supported is None:
            answer = device.ask("nvmlGpmQueryDeviceSupport")
            self._supported = answer is not None and bool(answer.isSupportedDevice)
        if not self._supported:
            return None
        try:
            return self._read(device, gpu_instance_id)
        except (DriverAway, GpuGone):
            raise
        except CallFailed as err:
            device.note(("gpm", gpu_instance_id), err)
            if samples := self._samples.get(gpu_instance_id):
                samples.taken_s = samples.last = None
            return None

    def forget(self) -> None:
        """Asks anew whether it is supported; the samples' memory is kept, since it belongs to no GPU."""
        self._supported = None
        self.rearm()

    def rearm(self) -> None:
        """Begins anew, after a sampler that had stopped."""
        for samples in self._samples.values():
            samples.taken_s = samples.last = None

    def _read(self, device: Device, instance: int | None) -> GpuActivity | None:
        if not device.may_ask(("gpm", instance)):
            return None
        samples = self._samples.get(instance) or self._alloc(device, instance)
        now_s = time.monotonic()
        if samples.taken_s is not None and now_s - samples.taken_s <= WINDOW_MIN_S:
            return samples.last
        samples.newer, samples.older = samples.older, samples.newer
        if instance is None:
            self.library.call(device.index, "nvmlGpmSampleGet", device.handle, samples.newer)
        else:
            arguments = device.handle, instance, samples.newer
            self.library.call(device.index, "nvmlGpmMigSampleGet", *arguments)
        began_s, samples.taken_s = samples.taken_s, now_s
        if began_s is None:
            return None
        _METRICS.sample1, _METRICS.sample2 = samples.older, samples.newer
        self.library.call(device.index, "nvmlGpmMetricsGet", _METRICS)
        read = list(_METRIC.iter_unpack(_VALUES))
        if instance is None:
            self._add_pcie(device, read[len(METRICS) :], now_s - began_s)
        samples.last = self._activity(device, read[: len(METRICS)], now_s - began_s)
        return samples.last

    def _alloc(self, device: Device, instance: int | None) -> _Samples:
        made = _Samples(*(self.library.call(device.index, "nvmlGpmSampleAlloc") for _ in range(2)))
        self._samples[instance] = made
        return made

    def _activity(
        self, device: Device, read: list[tuple[int, float]], window_s: float
    ) -> GpuActivity:
        ratios = {
            name: device.plausible.ratio(percent)
            for name, (code, percent) in zip(METRICS.values(), read, strict=True)
            if code == 0
        }
        return GpuActivity(window_s, **ratios)

    def _add_pcie(self, device: Device, read: list[tuple[int, float]], window_s: float) -> None:
        for way, (code, mib_s) in zip(PCIE.values(), read, strict=True):
            bytes_s = mib_s * 2**20 if code == 0 else None
            bytes_s = device.plausible.between(bytes_s, 0, PCIE_MAX_BYTES_S)
            if bytes_s is not None:
                self.pcie_bytes[way] = self.pcie_bytes.get(way, 0.0) + bytes_s * window_s

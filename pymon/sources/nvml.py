"""GPUs through NVML (the `pynvml` module of `nvidia-ml-py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.model.gpu import Gpu

ValueT = TypeVar("ValueT")


@dataclass(slots=True)
class Nvml:
    """The driver's library; opened at the first reading and again after the driver went away."""

    _library: Any = field(default=None)

    def gpu_count(self) -> int:
        """How many GPUs the driver knows. Raises SourceAbsent without a driver, SourceFailed where it errs."""
        library = self._open()
        try:
            return int(library.nvmlDeviceGetCount())
        except library.NVMLError as err:
            self._library = None
            raise SourceFailed(f"NVML: {err}") from None

    def read(self, index: int) -> Gpu:
        """One GPU, NVML's percent and mW as ratio and W. Raises SourceFailed where it does not even tell its name."""
        library = self._open()
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(library.nvmlDeviceGetUUID(handle))
            name = _text(library.nvmlDeviceGetName(handle))
        except library.NVMLError as err:
            raise SourceFailed(f"GPU {index}: {err}") from None
        memory = self._field(lambda: library.nvmlDeviceGetMemoryInfo(handle))
        rates = self._field(lambda: library.nvmlDeviceGetUtilizationRates(handle))
        power_mw = self._field(lambda: library.nvmlDeviceGetPowerUsage(handle))
        heat = self._field(
            lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)
        )
        return Gpu(
            uuid=uuid,
            index=index,
            name=name,
            utilization_ratio=None if rates is None else rates.gpu / 100,
            memory_total_bytes=None if memory is None else int(memory.total),
            memory_used_bytes=None if memory is None else int(memory.used),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_celsius=None if heat is None else float(heat),
        )

    def _field(self, read: Callable[[], ValueT]) -> ValueT | None:
        try:
            return read()
        except self._library.NVMLError:
            return None  # this GPU has no such reading; the others count

    def _open(self) -> Any:
        if self._library is None:
            try:
                import pynvml  # loaded late: a node without GPUs need not pay for it
            except ImportError:
                raise SourceAbsent("nvidia-ml-py is not installed") from None
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as err:
                raise SourceAbsent(f"no NVIDIA driver answers: {err}") from None
            self._library = pynvml
        return self._library


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

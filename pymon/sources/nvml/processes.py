"""Processes with a context on a GPU.

The rows of `nvmlDeviceGetComputeRunningProcesses_v3` have had 16, 24 and 32 bytes, under one name and without a version
in the call (R470, R510, R535, and a newer driver that answers with 16 again: XuehaiPan/nvitop#75, #226). What a call
has written into memory filled with a mark tells which it is.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from pymon.model.gpu import GpuProcess
from pymon.sources.nvml.device import Device
from pymon.sources.nvml.library import NOT_FOUND, CallFailed, DriverAway, GpuGone
from pymon.sources.nvml.plausible import OUT_OF_RANGE

STRIDES: Final = (16, 24, 32)
PID_MAX: Final = 4_194_304  # the kernel's own limit (PID_MAX_LIMIT)
ROWS_MAX: Final = 8192
_MARK = 0xA5
_ABSENT_U64, _ABSENT_U32 = 2**64 - 1, 2**32 - 1
_NAME = "nvmlDeviceGetComputeRunningProcesses"
_SHARES = "nvmlDeviceGetProcessUtilization"
_INSUFFICIENT_SIZE = 7


@dataclass(slots=True)
class Processes:
    """Reads the processes of one GPU; `utilization` also what share of the multiprocessors' time each took."""

    _capacity: int = 16
    _since_us: int = 0
    _sm: dict[int, float] = field(default_factory=dict)

    def read(self, device: Device, utilization: bool) -> tuple[GpuProcess, ...] | None:
        """None where the driver does not tell. Raises DriverAway and GpuGone."""
        rows = self._rows(device)
        if rows is None:
            return None
        sm = self._shares(device) if utilization else {}
        memory_bytes = device.identity.unified_memory
        found = {}
        for pid, used, instance in rows:
            if not 0 < pid <= PID_MAX:
                device.plausible.drop(OUT_OF_RANGE)
                continue
            known = None if used == _ABSENT_U64 or (memory_bytes and used == 0) else used
            gi = None if instance == _ABSENT_U32 else instance
            found[pid, gi] = GpuProcess(pid, known, gi, sm.get(pid))
        return tuple(found.values())

    def _rows(self, device: Device) -> list[tuple[int, int, int]] | None:
        for version in ("_v3", "_v2", ""):
            function = getattr(pynvml.nvmlLib, _NAME + version, None)
            if function is not None and device.may_ask((_NAME, version)):
                try:
                    return self._ask(device, function)
                except (DriverAway, GpuGone):
                    raise
                except CallFailed as err:
                    device.note((_NAME, version), err)
                    return None
        return None

    def _ask(self, device: Device, function: Any) -> list[tuple[int, int, int]]:
        while True:
            buffer = (ctypes.c_ubyte * (self._capacity * STRIDES[-1]))()
            ctypes.memset(buffer, _MARK, len(buffer))
            count = ctypes.c_uint(self._capacity)
            arguments = device.handle, ctypes.byref(count), buffer
            code = device.library.call_as(device.index, _NAME, function, *arguments)
            if code == _INSUFFICIENT_SIZE and self._capacity < ROWS_MAX:
                self._capacity = min(ROWS_MAX, max(2 * self._capacity, 2 * count.value))
                continue
            if code:
                raise device.library.failure(_NAME, code)
            return parse(bytes(buffer), min(count.value, self._capacity))

    def _shares(self, device: Device) -> dict[int, float]:
        """By the newest sample of each; while all idle there are none, which is no refusal."""
        arguments = device.handle, self._since_us
        samples = device.ask_as(_SHARES, _SHARES, *arguments, ok=NOT_FOUND) or ()
        samples = sorted(samples, key=lambda sample: int(sample.timeStamp))
        if samples:
            self._since_us = max(self._since_us, int(samples[-1].timeStamp))
        return {
            int(sample.pid): share
            for sample in samples
            if (share := device.plausible.ratio(sample.smUtil)) is not None
        }


def parse(written: bytes, count: int) -> list[tuple[int, int, int]]:
    """Pid, bytes and GPU instance of each row, by the stride that the marks tell."""
    stride = stride_of(written, count)
    rows = []
    for start in range(0, count * stride, stride):
        pid, used = struct.unpack_from("<I4xQ", written, start)
        instance = (
            _ABSENT_U32
            if stride == STRIDES[0]
            else struct.unpack_from("<I", written, start + 16)[0]
        )
        rows.append((pid, used, instance))
    return rows


def stride_of(written: bytes, count: int) -> int:
    """The smallest stride that holds what was written."""
    used = len(written.rstrip(bytes([_MARK])))
    return next((stride for stride in STRIDES if used <= count * stride), STRIDES[-1])

"""The MIG instances of a GPU: listed each ten seconds, read at each tick."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from pymon.model.gpu import MigInstance
from pymon.sources.nvml import memory
from pymon.sources.nvml.device import Device, text
from pymon.sources.nvml.gpm import Gpm
from pymon.sources.nvml.library import NOT_FOUND, CallFailed, DriverAway, GpuGone

_BY_INDEX: Final = "nvmlDeviceGetMigDeviceHandleByIndex"
_by_index = pynvml.nvmlDeviceGetMigDeviceHandleByIndex


@dataclass(frozen=True, slots=True)
class _Instance:
    handle: Any
    uuid: str
    gpu_instance_id: int
    compute_instance_id: int
    profile: str

    @property
    def who(self) -> tuple[int | None, str]:
        """Another one may have its numbers later."""
        return ctypes.cast(self.handle, ctypes.c_void_p).value, self.uuid


@dataclass(slots=True)
class Mig:
    """Empty on a GPU that is not cut into instances."""

    _instances: list[_Instance] = field(default_factory=list)

    def refresh(self, device: Device) -> bool:
        """Lists them anew, and says whether they are others now. Raises DriverAway and GpuGone."""
        before = [one.who for one in self._instances]
        self._instances = []
        if device.identity.mig_enabled:
            self._list(device)
        return [one.who for one in self._instances] != before

    def _list(self, device: Device) -> None:
        for place in range(int(device.ask("nvmlDeviceGetMaxMigDeviceCount") or 0)):
            try:
                handle = device.library.call_as(
                    device.index, _BY_INDEX, _by_index, device.handle, place, ok=NOT_FOUND
                )
                if handle is not None:  # there are fewer than the most there may be
                    self._add(device, handle)
            except (DriverAway, GpuGone):
                raise
            except CallFailed:
                continue  # it went away just now

    def read(self, device: Device, gpm: Gpm) -> tuple[MigInstance, ...]:
        """Memory and activity of each GPU instance once, however many compute instances share it."""
        found = {}
        for one in self._instances:
            if one.gpu_instance_id not in found:
                found[one.gpu_instance_id] = MigInstance(
                    uuid=one.uuid,
                    gpu_instance_id=one.gpu_instance_id,
                    compute_instance_id=one.compute_instance_id,
                    profile=one.profile,
                    memory=memory.read(device, one.handle, one.gpu_instance_id),
                    activity=gpm.read(device, one.gpu_instance_id),
                )
        return tuple(found.values())

    def _add(self, device: Device, handle: Any) -> None:
        call, index = device.library.call, device.index
        name = text(call(index, "nvmlDeviceGetName", handle))
        self._instances.append(
            _Instance(
                handle=handle,
                uuid=text(call(index, "nvmlDeviceGetUUID", handle)),
                gpu_instance_id=int(call(index, "nvmlDeviceGetGpuInstanceId", handle)),
                compute_instance_id=int(call(index, "nvmlDeviceGetComputeInstanceId", handle)),
                profile=name.rpartition("MIG ")[2],
            )
        )

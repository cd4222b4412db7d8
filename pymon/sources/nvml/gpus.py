"""All GPUs of the worker: opened by index, read one after the other, opened again after they went away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from pymon.model.gpu import FastReadings, GpuState, SlowReadings
from pymon.sources.nvml import fast, fields, slow
from pymon.sources.nvml.device import Device, mig_enabled, open_device
from pymon.sources.nvml.fields import Fields
from pymon.sources.nvml.gpm import Gpm
from pymon.sources.nvml.library import (
    GPU_IS_LOST,
    NO_PERMISSION,
    RESET_REQUIRED,
    UNKNOWN,
    CallFailed,
    DriverAway,
    Library,
)
from pymon.sources.nvml.mig import Mig
from pymon.sources.nvml.processes import Processes
from pymon.sources.nvml.wire import GpuRead, Sweep

STATES: Final = {
    NO_PERMISSION: GpuState.NO_PERMISSION,
    GPU_IS_LOST: GpuState.LOST,
    RESET_REQUIRED: GpuState.RESET_REQUIRED,
}


def state_of(err: CallFailed) -> GpuState:
    """What an error that left nothing to read says of the GPU."""
    return STATES.get(err.code, GpuState.UNKNOWN)


@dataclass(slots=True)
class _Slot:
    """One index. `device` is None until the GPU answers; `due_s` is when the slow readings, or a new try, are due."""

    index: int
    gpm: Gpm
    uuid: str = ""  # of the GPU that was here first
    device: Device | None = None
    mig: Mig = field(default_factory=Mig)
    processes: Processes = field(default_factory=Processes)
    failed: CallFailed | None = None
    due_s: float = 0.0
    fast_fields: Fields = field(default_factory=lambda: Fields(()))
    slow_fields: Fields = field(default_factory=lambda: Fields(()))


@dataclass(slots=True)
class Gpus:
    """Reads `count` GPUs. One that errs costs itself only."""

    library: Library
    driver_version: str
    count: int
    _slots: list[_Slot] = field(init=False)

    def __post_init__(self) -> None:
        self._slots = [_Slot(index, Gpm(self.library)) for index in range(self.count)]

    def read(self, order: Sweep) -> Iterator[GpuRead]:
        """One after the other, as they are read. Raises DriverAway."""
        for slot in self._slots:
            if slot.index not in order.skip:
                yield self._read(slot, order)

    def devices(self) -> Iterator[Device]:
        """Those that answer."""
        return (slot.device for slot in self._slots if slot.device is not None)

    def _read(self, slot: _Slot, order: Sweep) -> GpuRead:
        now_s = time.monotonic()
        due = now_s >= slot.due_s
        if due:
            # The first time the GPUs spread over the period, so that later no tick has all of them.
            first = slot.due_s == 0
            share = (slot.index + 1) / self.count if first else 1.0
            slot.due_s = now_s + order.slow_s * share
        try:
            if slot.device is None and due:
                self._open(slot, order)
            if slot.device is None:
                return _unread(slot)
            return self._readings(slot, slot.device, order, due, now_s)
        except DriverAway:
            raise
        except CallFailed as err:
            slot.failed, slot.device = err, None
            return _unread(slot)
        except Exception as err:  # noqa: BLE001 - a driver's answer that nobody thought of costs its own GPU only
            slot.failed, slot.device = CallFailed(f"{type(err).__name__}: {err}", UNKNOWN), None
            return _unread(slot)

    def _open(self, slot: _Slot, order: Sweep) -> None:
        handle = self.library.call(slot.index, "nvmlDeviceGetHandleByIndex", slot.index)
        device = open_device(self.library, slot.index, handle)
        others = {other.uuid for other in self._slots if other is not slot}
        if (
            device.identity.uuid != (slot.uuid or device.identity.uuid)
            or device.identity.uuid in others
        ):
            raise DriverAway("nvmlDeviceGetUUID", 0)  # the indices have shifted: all begins anew
        slot.uuid = device.identity.uuid
        links = 0
        if order.per_link:
            found = Fields([(fields.NVLINK_LINKS, 0)]).read(device)
            links = int(found.get((fields.NVLINK_LINKS, 0), 0))
        slot.fast_fields = Fields(fast.wanted(self.driver_version, links))
        slot.slow_fields = Fields(slow.wanted(links))
        slot.gpm.forget()
        slot.mig, slot.processes = Mig(), Processes()
        slot.device, slot.failed = device, None
        slot.mig.refresh(device)

    def _readings(
        self, slot: _Slot, device: Device, order: Sweep, due: bool, now_s: float
    ) -> GpuRead:
        device.failed = None
        if due:
            self._check_mig(slot, device)
        quick = fast.read(device, slot.fast_fields, slot.gpm, slot.mig, now_s)
        shares = order.process_utilization
        rest = slow.read(device, slot.slow_fields, slot.processes, shares, now_s) if due else None
        failed = device.failed
        if failed is not None and quick == FastReadings() and rest in (None, SlowReadings()):
            raise failed  # not one answer: it is no GPU that can be read
        return GpuRead(
            index=slot.index,
            uuid=device.identity.uuid,
            state=GpuState.OK,
            reason="",
            identity=device.identity,
            fast=quick,
            slow=rest,
            invalid=device.plausible.take_invalid(),
        )

    def _check_mig(self, slot: _Slot, device: Device) -> None:
        enabled = mig_enabled(device)
        if enabled != device.identity.mig_enabled:
            device.identity = replace(device.identity, mig_enabled=enabled)
            device.forget_refusals()
            slot.gpm.forget()
        if slot.mig.refresh(device):
            # What an instance refused while it went, its successor may tell.
            device.forget_refusals()
            slot.gpm.rearm()


def _unread(slot: _Slot) -> GpuRead:
    failed = slot.failed
    assert failed is not None
    state = state_of(failed)
    return GpuRead(slot.index, "", state, str(failed), None, None, None)

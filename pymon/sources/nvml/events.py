"""XID errors from NVML's events, taken without waiting."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from pymon.sources.nvml.announce import NO_GPU
from pymon.sources.nvml.device import Device
from pymon.sources.nvml.library import CallFailed, DriverAway, Library
from pymon.sources.nvml.wire import Xid

DRAIN_MAX: Final = 500  # of a sweep; the rest of a storm waits in the driver for the next one
DRAIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 60.0
_TIMEOUT = 10


@dataclass(slots=True)
class XidEvents:
    """`watching` while at least one GPU tells its errors.

    After a wait that fails all is left alone for a while, and then those that answer are watched by a new set: one that
    holds a GPU that is gone may fail for ever.
    """

    library: Library
    watching: bool = False
    _set: Any = None
    _uuids: dict[int, str] = field(
        default_factory=dict
    )  # by the handle's address, also of GPUs that are gone
    _registered: set[int] = field(default_factory=set)
    _backoff_s: float = 1.0
    _again_s: float = 0.0

    def register(self, devices: Iterable[Device]) -> None:
        """Watches these GPUs too. Raises DriverAway."""
        if time.monotonic() < self._again_s:
            return
        before, self._registered = self._registered, set()
        for device in devices:
            address = _address(device.handle)
            self._registered.add(address)
            if address in before:
                continue
            self._uuids[address] = device.identity.uuid
            try:
                self._watch(device)
            except DriverAway:
                raise
            except CallFailed:
                continue  # it has no events; the kernel log may

    def take(self) -> tuple[Xid, ...]:
        """Those that came since the last time. Raises DriverAway."""
        now_s = time.monotonic()
        if not self.watching or now_s < self._again_s:
            return ()
        found: list[Xid] = []
        try:
            while len(found) < DRAIN_MAX and time.monotonic() - now_s < DRAIN_S:
                event = self.library.call_as(
                    NO_GPU, "nvmlEventSetWait", pynvml.nvmlEventSetWait, self._set, 0, ok=_TIMEOUT
                )
                if event is None:
                    break
                if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                    found.append(
                        Xid(self._uuids.get(_address(event.device), ""), int(event.eventData))
                    )
            self._backoff_s = 1.0
        except DriverAway:
            raise
        except CallFailed:
            self._begin_anew(now_s)
        return tuple(found)

    def _begin_anew(self, now_s: float) -> None:
        self._again_s = now_s + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)
        failed, self._set, self.watching = self._set, None, False
        self._registered.clear()
        try:
            self.library.call(NO_GPU, "nvmlEventSetFree", failed)
        except DriverAway:
            raise
        except CallFailed:
            pass

    def _watch(self, device: Device) -> None:
        types = device.ask("nvmlDeviceGetSupportedEventTypes") or 0
        if not types & pynvml.nvmlEventTypeXidCriticalError:
            return
        if self._set is None:
            self._set = self.library.call(NO_GPU, "nvmlEventSetCreate")
        arguments = device.handle, pynvml.nvmlEventTypeXidCriticalError, self._set
        self.library.call(device.index, "nvmlDeviceRegisterEvents", *arguments)
        self.watching = True


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0

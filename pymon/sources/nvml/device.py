"""One GPU of the driver's library: its handle, who it is, and which questions it does not answer."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from pymon.model.gpu import GpuIdentity
from pymon.sources.nvml.library import (
    NEVER,
    NO_PERMISSION,
    CallFailed,
    DriverAway,
    GpuGone,
    Library,
)
from pymon.sources.nvml.plausible import Plausible

REASK_S: Final = 600.0  # a driver gains no function while it runs; rights and modes may change
TEXT_MAX: Final = 96  # NVML's longest buffer for a name


@dataclass(slots=True)
class Device:
    """`ask` gives None for what the GPU does not tell; `failed` is the newest error that was no plain refusal."""

    library: Library
    index: int
    handle: Any
    identity: GpuIdentity
    plausible: Plausible = field(default_factory=Plausible)
    failed: CallFailed | None = None
    refusals: int = 0  # grows with each change of what it refuses
    _never: set[Hashable] = field(default_factory=set)
    _reask_s: float = field(default_factory=lambda: time.monotonic() + REASK_S)

    def ask(self, function: str, *arguments: Any) -> Any:
        """The answer for this GPU, or None. Raises DriverAway and GpuGone."""
        return self.ask_as((function, *arguments), function, self.handle, *arguments)

    def ask_as(self, question: Hashable, function: str, *arguments: Any, ok: int = 0) -> Any:
        """As `ask`, with all arguments given; `question` is what a refusal is remembered by. The code `ok` is none."""
        if not self.may_ask(question):
            return None
        try:
            return self.library.call(self.index, function, *arguments, ok=ok)
        except (DriverAway, GpuGone):
            raise
        except CallFailed as err:
            self.note(question, err)
            return None

    def may_ask(self, question: Hashable) -> bool:
        """Whether it has not refused this for good."""
        self.reask_in_time()
        return question not in self._never

    def reask_in_time(self) -> None:
        """Forgets refusals that are old."""
        if self._never and time.monotonic() >= self._reask_s:
            self.forget_refusals()

    def note(self, question: Hashable, err: CallFailed) -> None:
        """Remembers a refusal. An error of another kind may pass: it is asked again."""
        if err.code in NEVER or err.code == NO_PERMISSION:
            self._never.add(question)
            self.refusals += 1
        if err.code not in NEVER:
            self.failed = err

    def forget_refusals(self) -> None:
        """Everything is asked again, as after a change of the MIG mode."""
        self._never.clear()
        self.refusals += 1
        self._reask_s = time.monotonic() + REASK_S


def open_device(library: Library, index: int, handle: Any) -> Device:
    """The GPU behind a handle. Raises CallFailed where it does not even tell its UUID."""
    uuid = text(library.call(index, "nvmlDeviceGetUUID", handle))
    device = Device(library, index, handle, GpuIdentity(uuid, "", "", "", False, False))
    pci = device.ask("nvmlDeviceGetPciInfo")
    device.identity = GpuIdentity(
        uuid=uuid,
        name=text(device.ask("nvmlDeviceGetName")),
        pci_bus_id=_bus_id(pci),
        serial=text(device.ask("nvmlDeviceGetSerial")),
        unified_memory=_has_no_memory(device),
        mig_enabled=mig_enabled(device),
    )
    return device


def _bus_id(pci: Any) -> str:
    try:
        return text(pci.busId) if pci else ""
    except UnicodeDecodeError:
        return ""


def _has_no_memory(device: Device) -> bool:
    """It says so itself; an error or a missing right says nothing."""
    device.failed = None
    return device.ask("nvmlDeviceGetMemoryInfo") is None and device.failed is None


def mig_enabled(device: Device) -> bool:
    """Whether it is cut into instances now."""
    modes = device.ask("nvmlDeviceGetMigMode")
    return bool(modes) and modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def text(value: str | bytes | None) -> str:
    """A driver's string, which may be garbage: printable and bounded, empty where there is none."""
    if value is None:
        return ""
    given = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return "".join(char if char.isprintable() else "?" for char in given[:TEXT_MAX])

"""A request for a deep capture, and the receipt every request ends in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class CaptureKind(Enum):
    """Which way the evidence is taken."""

    TORCH = "torch"  # the probe runs torch.profiler on step boundaries
    COUNTERS = "counters"  # a child of the probe samples the GPU's hardware counters
    KINETO = "kineto"  # Kineto's on-demand socket, for processes without a probe


class ReceiptStatus(Enum):
    """How a request ended, for one process."""

    WRITTEN = "written"
    REFUSED = "refused"
    FAILED = "failed"
    MISSED = "missed"  # the rank was past the ordered step


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """One wish for evidence. `pids` empty means all processes that can be captured."""

    capture_id: str  # ^[A-Za-z0-9_-]{1,64}$, made by the daemon, names the folder
    pids: tuple[int, ...]
    steps: int
    cause: str  # `manual`, `signal`, or the detector's name
    requested_real_ns: int
    incident_id: str | None = None
    kind: CaptureKind = (
        CaptureKind.TORCH
    )  # COUNTERS, or whichever way each process has for a profile
    burst_s: float = 0.0  # of a burst of counters


@dataclass(frozen=True, slots=True)
class CaptureFile:
    """One file of a capture; `name` is relative to the capture's folder."""

    name: str
    size_bytes: int
    kind: str  # `trace`, `call_sites`, `counters`, `diagnosis`, `report`


@dataclass(frozen=True, slots=True)
class CaptureReceipt:
    """How the request ended for one process. `reason` is set unless `status` is WRITTEN."""

    capture_id: str
    kind: CaptureKind
    pid: int
    rank: int | None
    status: ReceiptStatus
    reason: str = ""
    files: tuple[CaptureFile, ...] = ()
    first_step: int | None = None
    steps: int = 0
    took_s: float = 0.0

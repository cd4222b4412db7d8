"""What one run (`pymon run`) came to: the summary printed at its end and shown in its report."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.model.capture import CaptureReceipt
from pymon.model.counters import CounterBurst
from pymon.model.diagnosis import Diagnosis
from pymon.model.finding import Incident


@dataclass(frozen=True, slots=True)
class RunProcess:
    """One training process of the run, as it stood last."""

    rank: int | None
    pid: int
    script: str
    steps_total: int
    estimated: bool
    steps_lost_total: int
    median_step_s: float | None  # over the steps that the daemon read; None without any
    phase_s_total: tuple[float, ...]  # one per PHASES
    own_cost_ratio: float | None  # the probe's own time in hooks against step time
    ended: str | None
    # torch's allocator, of the device that had most: the user's own peak. None: no CUDA, or not told.
    allocated_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RunCapture:
    """One capture of the run, with what its reading said."""

    capture_id: str
    cause: str
    folder: str
    receipts: tuple[CaptureReceipt, ...]
    diagnoses: tuple[Diagnosis, ...]
    report_path: str | None
    problem: str = ""  # why a written capture could not be read
    counters: tuple[CounterBurst, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """All of it. `advice_first` is what to change first, None where nothing stood out."""

    run_id: str
    began_real_ns: int
    wall_s: float
    processes: tuple[RunProcess, ...]
    incidents: tuple[Incident, ...]
    captures: tuple[RunCapture, ...]
    advice_first: str | None
    report_path: str | None

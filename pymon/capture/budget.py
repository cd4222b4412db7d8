"""What a capture may cost, and when there is none."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from pymon.base.clock import Clock
from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.base.units import human_bytes
from pymon.sources.procfs import Procfs

MANUAL = ("manual", "signal")  # causes that a person stands behind: they wait for no cooldown


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Bounds of every capture; each is a key of [capture] in the configuration."""

    max_s: float = 30.0  # of the recording; profiled steps take up to twice their time, and users notice a minute
    # Stopping the profiler costs about 8 µs and 1.2 kB for each event: half a second and 65 MB at this bound.
    max_events: int = 50_000
    min_free_bytes: int = 256 * 1024 * 1024  # of disk and memory; several captures at their bounds
    quota_bytes: int = 2 * 1024 * 1024 * 1024  # of all kept captures; the oldest go first
    cooldown_s: float = 300.0  # between captures of one cause for one process set
    steps_max: int = 50  # of one order; the bound on events is the real one
    trace_max_bytes: int = 512 * 1024 * 1024  # of one file that a trainer wrote


@dataclass(slots=True)
class Budget:
    """One capture at a time on a node, a pause between captures of one cause, and room on the disk."""

    settings: CaptureSettings
    clock: Clock
    captures_dir: Path
    procfs: Procfs = field(default_factory=Procfs)
    busy: str = ""  # the capture under way
    _last_ns: dict[str, int] = field(default_factory=dict)

    def refusal(self, cause: str) -> str:
        """Why there can be no capture now; empty where there can."""
        if self.busy:
            return f"capture {self.busy} is under way; one at a time"
        last_ns = self._last_ns.get(cause)
        if cause not in MANUAL and last_ns is not None:
            left_s = self.settings.cooldown_s - (self.clock.monotonic_ns() - last_ns) / 1e9
            if left_s > 0:
                return f"in cooldown: {cause} was captured lately, again in {left_s:.0f} s"
        return self._no_room()

    def began(self, capture_id: str, cause: str) -> None:
        """A capture is under way."""
        self.busy = capture_id
        now_ns = self.clock.monotonic_ns()
        cold_ns = now_ns - int(self.settings.cooldown_s * 1e9)
        self._last_ns = {who: at for who, at in self._last_ns.items() if at > cold_ns}
        self._last_ns[cause] = now_ns

    def ended(self) -> None:
        """It is over, however it ended."""
        self.busy = ""

    def _no_room(self) -> str:
        try:
            free = shutil.disk_usage(self.captures_dir).free
        except OSError as err:
            return f"{self.captures_dir} cannot be used: {err.strerror}"
        if not os.access(self.captures_dir, os.W_OK):
            return f"{self.captures_dir} cannot be written"
        needed = self.settings.min_free_bytes
        if free < needed:
            return f"{human_bytes(free)} of disk are free in {self.captures_dir}, {human_bytes(needed)} must be"
        # Unknown is no reason: the probe looks for itself too.
        with contextlib.suppress(SourceAbsent, SourceFailed):
            available = self.procfs.memory().available_bytes
            if available < needed:
                return f"{human_bytes(available)} of memory are available, {human_bytes(needed)} must be"
        return ""

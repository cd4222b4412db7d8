"""What the kernel shows of the driver without asking it: a change means that the library must be loaded anew."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOOK_EACH_S: Final = 5.0
_FILES = ("dev/nvidiactl", "dev/dxg")  # there once a driver is (the second on WSL)
_VERSION = "proc/driver/nvidia/version"
_GPUS = "proc/driver/nvidia/gpus"


@dataclass(slots=True)
class Marks:
    """`root` is a parameter so that tests bring their own tree."""

    root: Path = Path("/")
    _last: tuple[object, ...] | None = None
    _looked_s: float = 0.0

    def changed(self, now_s: float) -> bool:
        """Whether a driver came, went or was replaced, or a GPU was plugged in or out, since the last time."""
        if self._last is not None and now_s - self._looked_s < LOOK_EACH_S:
            return False
        self._looked_s = now_s
        last, self._last = self._last, self._look()
        return last is not None and last != self._last

    def _look(self) -> tuple[object, ...]:
        version, gpus = "", []
        with contextlib.suppress(OSError):
            version = (self.root / _VERSION).read_text(encoding="ascii", errors="replace")
        with contextlib.suppress(OSError):
            gpus = sorted(os.listdir(self.root / _GPUS))
        return (version, tuple(gpus), *((self.root / name).exists() for name in _FILES))

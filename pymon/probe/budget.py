"""What the probe may cost, and what it leaves away where it costs more: docs/probe.md, "Budget".

Judged on the sender thread, once a window, from what the hooks timed of themselves and the processor time of pymon's
own threads, against the time of the steps that ended meanwhile. `pymon disarm` comes in here too.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

DEFAULT_RATIO = 0.01  # design: of step time
ENV = "PYMON_BUDGET_RATIO"
# As the GPU layers' own guard (csrc/gpu/self_guard.h): a window outlasts one burst of start-up or compilation, and
# three in a row are no busy half minute.
WINDOW_S = 10.0
WINDOWS_OVER = 3
# A layer that was shed costs nothing, so nothing tells whether it would fit again: it is tried, and where it does not,
# tried half as often. Twenty windows let the ones before be forgotten.
BACK_S = 20 * WINDOW_S
BACK_MOST_S = 3600.0
SHED_ALL = 4  # enum Shed of csrc/core/layout.h, as are the levels here
SHED_RECORDS = 3
OFF = "switched off by `pymon disarm`"
_PPM_MOST = 0xFFFFFFFF


class Budget:
    """One per page. `native` is `pymon.native._probe`, `gpu` a `GpuLayers`; a capture needs the hooks."""

    def __init__(
        self,
        native: Any,
        gpu: Any,
        is_capturing: Callable[[], bool],
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self._native, self._gpu, self._is_capturing = native, gpu, is_capturing
        self._chosen = _ratio(env.get(ENV, ""))  # the environment's word is the last
        self.ratio = self._chosen or DEFAULT_RATIO
        self.armed = True
        self._level = self._sheds = self._over = 0
        self._measured = 0.0
        self._back_s = BACK_S
        self._back_at_s = math.inf
        self._before: tuple[int, int, int, int] | None = None  # none before the thread's first tick
        self._began_s = 0.0

    def tell(self, armed: bool, budget_ratio: float) -> None:
        """The daemon's wish: 0 leaves the budget as it is."""
        if budget_ratio > 0 and not self._chosen:
            self.ratio = budget_ratio
        self.armed = armed
        self.tick()

    def tick(self) -> None:
        """Sender thread, about twice a second."""
        is_off = self._level == SHED_ALL
        if not self.armed and not is_off and not self._is_capturing():
            self._shed(SHED_ALL, OFF)
        elif self.armed and is_off:
            self._over, self._back_at_s = 0, math.inf
            self._shed(0)
            self._begin()
        elif not is_off:
            self._judge(time.monotonic())

    def _judge(self, now_s: float) -> None:
        if self._before is None:
            self._begin()
        assert self._before is not None
        own_ns, step_ns, steps = self._native.costs()
        # A step longer than the window belongs to the window in which it ends.
        if now_s - self._began_s < WINDOW_S or steps == self._before[2]:
            return
        threads_ns = _threads_cpu_ns()
        spent_ns = own_ns - self._before[0] + threads_ns - self._before[3]
        self._measured = spent_ns / max(step_ns - self._before[1], 1)
        self._over = self._over + 1 if self._measured > self.ratio else 0
        if self._over >= WINDOWS_OVER and self._level < SHED_RECORDS:
            self._over, self._sheds = 0, self._sheds + 1
            self._back_at_s = now_s + self._back_s
            self._back_s = min(2 * self._back_s, BACK_MOST_S)
            self._shed(self._level + 1, "over pymon's budget")
        elif now_s >= self._back_at_s and self._measured < self.ratio / 2:
            self._back_at_s = now_s + self._back_s if self._level > 1 else math.inf
            self._shed(self._level - 1)
        else:
            self._show()
        self._begin()

    def _shed(self, level: int, why: str = "") -> None:
        self._level = level
        self._gpu.shed(level > 0, why)
        self._show()

    def _show(self) -> None:
        ppm = min(round(self._measured * 1e6), _PPM_MOST)
        budget_ppm = min(max(round(self.ratio * 1e6), 1), _PPM_MOST)
        self._native.set_shed(self._level, self._sheds, budget_ppm << 32 | ppm)

    def _begin(self) -> None:
        self._began_s = time.monotonic()
        self._before = (*self._native.costs(), _threads_cpu_ns())


def _ratio(text: str) -> float | None:
    """None where nothing usable was given."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def _threads_cpu_ns() -> int:
    """Processor time of the caller and of the GPU layers' threads, which are named `pymon-`."""
    total_ns, own = time.thread_time_ns(), str(threading.get_native_id())
    if "torch" not in sys.modules or not sys.modules["torch"].cuda.is_initialized():
        return total_ns  # without CUDA there are no others
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm", "rb") as file:
                ours = file.read(6) == b"pymon-" and thread != own
            if ours:
                with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
                    total_ns += int(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            continue  # it ended, or this kernel counts nothing
    return total_ns

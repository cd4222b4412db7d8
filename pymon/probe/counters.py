"""A burst of hardware counters of this process's GPU: ordered here, made by a child (`counters_child.py`).

All but `yield_to_user` runs on the sender thread. The lease on CUPTI is the burst's from before the child starts until
it is gone: the activity layer stands back, and the user's profiler, which comes first, ends the burst.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymon.link.wire import CountersOrder, Receipt
from pymon.probe.profiler_registry import ProfilerRegistry

LONGEST_S = 10.0  # as csrc/gpu/pm_sampling.h
# Beyond the burst: CUDA and CUPTI come up in the child, which takes seconds where the driver is slow, and what was
# sampled last is decoded. After this it hangs.
GRACE_S = 15.0
# A killed child that is not gone by then sits in a call of the driver's that no signal ends.
KILL_S = 5.0
# The user's profiler waits at most this long for the burst to end, and as long again for it to be killed.
YIELD_S = 1.0
FILE = "counters.json"
_YIELDED = "the job's own profiler started, and came first"
_ROOT = str(Path(__file__).parents[2])
_PROGRAM = (
    "import json, sys; sys.path.insert(0, sys.argv[2])\n"
    "from pymon.probe.counters_child import main; main(json.loads(sys.argv[1]))"
)


@dataclass
class _Burst:
    order: CountersOrder
    path: str  # the order's folder in the spool
    child: subprocess.Popen[bytes]
    began_s: float
    killed_s: float = 0.0


@dataclass(eq=False)
class _Lease:
    """Stands for a burst among the sessions that CUPTI is lent to."""


@dataclass
class Counters:
    """`native` is `pymon.native._probe`; `keep` is told the folder of each written burst.

    `layers` are the GPU layers of this process; None where there are none to stand back.
    """

    native: Any
    registry: ProfilerRegistry
    keep: Callable[[str], None]
    layers: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _burst: _Burst | None = None
    _lease: _Lease | None = None
    _receipts: list[Receipt] = field(default_factory=list)
    _stuck: list[_Burst] = field(default_factory=list)  # children that even a kill did not end

    @property
    def busy(self) -> str:
        """The capture that a burst is made for now; empty where none is."""
        burst = self._burst
        return burst.order.capture_id if burst else ""

    def begin(self, order: CountersOrder, path: str) -> str:
        """Starts a burst that writes into the folder `path`; why not, or empty where its receipt follows."""
        if not 0 < order.seconds <= LONGEST_S:
            return f"a burst lasts {LONGEST_S:.0f} s at most"
        # The user's profiler, opened meanwhile, waits for this lock and then finds the burst.
        with self._lock:
            if busy := self.registry.user_session():
                return busy
            found = self._gpu()
            if isinstance(found, str):
                return found
            self._lease = _Lease()
            refusal: str = self.layers.lend(self._lease) if self.layers is not None else ""
            if refusal:
                self._lease = None
                return refusal
            try:
                child = _started(order, path, *found)
            except Exception as err:  # noqa: BLE001 - whatever it is, CUPTI goes back
                self._give_back()
                return f"the process that would read the counters cannot be started: {err}"
            self._burst = _Burst(order, path, child, time.monotonic())
        return ""

    def _gpu(self) -> tuple[int, str] | str:
        """Device and UUID (empty: unknown) of the GPU that is trained on, or why there is none."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return "CUDA is not in use in this process"
        device = self.native.gpu_device()
        if device < 0:
            if torch.cuda.device_count() != 1:
                return "which GPU this process trains on is not known: no step on one was seen yet"
            device = 0
        try:
            uuid = str(torch.cuda.get_device_properties(device).uuid)
        except Exception:  # noqa: BLE001 - torch before 2.5 has none; the device's number does too
            return device, ""
        return device, uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"

    def poll(self) -> list[Receipt]:
        """Receipts that are due; ends a child that does not end by itself."""
        if self._lock.acquire(
            blocking=False
        ):  # else the user's profiler is at it, and will be done
            try:
                self._look()
            finally:
                self._lock.release()
        due, self._receipts = self._receipts, []
        return due

    def _look(self) -> None:
        burst = self._burst
        if burst is None:
            return
        over_s = time.monotonic() - burst.began_s - burst.order.seconds - GRACE_S
        if burst.child.poll() is not None:
            self._end(*_answer(burst))
        elif burst.killed_s and time.monotonic() - burst.killed_s > KILL_S:
            self._stuck.append(burst)
            self._end(
                "failed", "a call of CUPTI's does not return, and its process cannot be ended"
            )
        elif over_s > 0 and not burst.killed_s:
            burst.killed_s = time.monotonic()
            burst.child.kill()

    def yield_to_user(self) -> None:
        """The user's profiler is about to open, in its own thread: the burst makes room first."""
        with self._lock:
            burst = self._burst
            if burst is None:
                return
            _tell_to_stop(burst)
            for _ in range(2):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    burst.child.wait(YIELD_S)
                    break
                burst.child.kill()
            if burst.child.returncode is None:
                self._stuck.append(burst)
            self._end("failed", _YIELDED)

    def close(self) -> None:
        """At exit: the child ends by itself, now rather than when this process is gone."""
        if (burst := self._burst) is not None:
            _tell_to_stop(burst)

    def _end(self, status: str, reason: str) -> None:
        burst, self._burst = self._burst, None
        assert burst is not None
        assert burst.child.stdin is not None
        assert burst.child.stdout is not None
        burst.child.stdin.close()
        burst.child.stdout.close()
        self._give_back()
        written = status == "written"
        if written:
            self.keep(burst.path)
        else:
            shutil.rmtree(burst.path, ignore_errors=True)
        self._receipts.append(
            Receipt(
                capture_id=burst.order.capture_id,
                status=status,
                reason=reason[:512],
                folder=os.path.basename(burst.path) if written else "",
                files=[FILE] if written else [],
                took_s=time.monotonic() - burst.began_s,
            )
        )

    def _give_back(self) -> None:
        lease, self._lease = self._lease, None
        if self.layers is not None and lease is not None:
            self.layers.session_ends(lease)


def _started(order: CountersOrder, path: str, device: int, uuid: str) -> subprocess.Popen[bytes]:
    """Isolated, without site packages: of this environment the child loads pymon and nothing else."""
    env = {**os.environ, "PYMON": "0"}
    if "libpymon_inject" in env.get("CUDA_INJECTION64_PATH", ""):
        del env["CUDA_INJECTION64_PATH"]
    if uuid:  # what CUDA_VISIBLE_DEVICES says may have been changed since CUDA read it
        env["CUDA_VISIBLE_DEVICES"], device = uuid, 0
    task = {
        "seconds": order.seconds,
        "device": device,
        "uuid": uuid,
        "cupti": _loaded_cupti(),
        "path": os.path.join(path, FILE),
        "dies_after_s": order.seconds + GRACE_S + KILL_S,
    }
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, json.dumps(task), _ROOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,  # Ctrl-C is the trainer's
    )
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    return child


def _tell_to_stop(burst: _Burst) -> None:
    """A byte rather than the pipe's end, which a loader worker that was forked meanwhile would hold back."""
    assert burst.child.stdin is not None
    with contextlib.suppress(OSError, ValueError):
        os.write(burst.child.stdin.fileno(), b"q")


def _loaded_cupti() -> str:
    """The libcupti that this process has, as torch loaded it; empty where it has none."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as file:
        if found := re.search(r"(/\S*/libcupti\.so\.[\d.]+)$", file.read(), re.MULTILINE):
            return found[1]
    return ""


def _answer(burst: _Burst) -> tuple[str, str]:
    """What the child said before it ended, or how it ended without a word."""
    assert burst.child.stdout is not None
    if burst.killed_s:
        seconds = burst.order.seconds + GRACE_S
        return (
            "failed",
            f"a call of CUPTI's had not returned after {seconds:.0f} s; its process was killed",
        )
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        said = json.loads(burst.child.stdout.read() or b"")
        return str(said["status"]), str(said["reason"])
    code = burst.child.returncode
    how = f"of signal {-code}" if code < 0 else f"with exit code {code}"
    return "failed", f"the process that read the counters ended {how}"

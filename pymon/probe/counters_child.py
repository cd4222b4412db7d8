"""One burst of hardware counters, in a process of its own: CUPTI's calls there can hang and crash, training must not.

Started by `counters.py` with one argument, the order as JSON. Says on stdout what became of it, one line of JSON:
`status` (`written`, `refused`, `failed`) and `reason`; a written burst lies in the file that the order names. A byte
on stdin, or its end, which is also the trainer's death, ends the burst early.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import threading
from typing import Any

from pymon import native
from pymon.probe.sm_clock import SmClock

VERSION = 1
INTERVAL_NS = 500_000  # as XLA samples (docs/gpu-support.md)
SAMPLES_MAX = (
    4_000  # two seconds of these; longer bursts are sampled less often, so that files stay small
)
_CUT = "it was ended before its time"


def main(order: dict[str, Any]) -> None:
    """`order`: seconds, device (as CUDA counts here), uuid and cupti (both may be empty), path, dies_after_s."""
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, 0)
    )  # should CUPTI crash: no core in the trainer's folder
    module, why_not = native.probe()
    if module is None:
        _say("refused", why_not)
        return
    threading.Thread(target=_stop_when_told, args=(module,), daemon=True).start()
    # A call that never returns ends with this process, also where nobody is left to kill it.
    watchdog = threading.Timer(order["dies_after_s"], os._exit, (3,))
    watchdog.daemon = True
    watchdog.start()
    _say(*_burst(module, order))


def _say(status: str, reason: str) -> None:
    sys.stdout.write(json.dumps({"status": status, "reason": reason}) + "\n")
    sys.stdout.flush()


def _stop_when_told(module: Any) -> None:
    os.read(0, 1)
    module.counters_stop()


def _burst(module: Any, order: dict[str, Any]) -> tuple[str, str]:
    try:
        if order["cupti"]:  # the very library that the trainer has; found by its name from here on
            ctypes.CDLL(order["cupti"], ctypes.RTLD_GLOBAL)
    except OSError as err:
        return "refused", f"{order['cupti']} cannot be loaded: {err}"
    clock = SmClock(order["uuid"])
    before_hz = clock.hz()
    seconds = order["seconds"]
    burst = module.counters_burst(order["device"], seconds, interval_ns(seconds))
    if burst["status"] != "written":
        return burst["status"], burst["reason"]
    if burst["stopped"]:
        return "failed", _CUT
    if not burst["start_ns"]:
        return "failed", f"no sample came in {seconds:g} s"
    document = document_of(burst, module.counters_metrics())
    document["uuid"] = order["uuid"]
    document["sm_clock_before_hz"], document["sm_clock_after_hz"] = before_hz, clock.hz()
    try:
        with open(order["path"], "x", encoding="utf-8") as file:
            json.dump(document, file)
    except OSError as err:
        return "failed", f"the counters could not be written: {err}"
    return "written", ""


def interval_ns(seconds: float) -> int:
    """Between two samples of a burst."""
    return max(INTERVAL_NS, round(seconds * 1e9 / SAMPLES_MAX))


def document_of(burst: dict[str, Any], asked: list[str]) -> dict[str, Any]:
    """What the file holds: by metric `summary` and `samples`, which end `end_s` after the first one began."""
    began_ns = burst["start_ns"][0]
    covered_s = (sum(burst["end_ns"]) - sum(burst["start_ns"])) / 1e9  # without the lost ones
    metrics = burst["metrics"]
    return {
        "version": VERSION,
        "device": burst["device"],
        "chip": burst["chip"],
        "duration_s": (burst["end_ns"][-1] - began_ns) / 1e9,
        "samples_total": len(burst["start_ns"]),
        "samples_lost": burst["samples_lost"],
        "samples_cut": burst["samples_cut"],
        "overflows": burst["overflows"],
        "absent": [name for name in asked if name not in metrics],
        "summary": {name: _summary(name, values, covered_s) for name, values in metrics.items()},
        "end_s": [round((end_ns - began_ns) / 1e9, 7) for end_ns in burst["end_ns"]],
        "samples": {name: [float(f"{v:.6g}") for v in values] for name, values in metrics.items()},
    }


def _summary(name: str, values: list[float], covered_s: float) -> dict[str, float]:
    """Bytes are told as their sum and by the second; ratios and clocks as mean and maximum."""
    total = sum(values)
    if name.endswith("_bytes"):
        return {"total": total, "per_s": total / covered_s}
    return {"mean": total / len(values), "max": max(values)}

"""Reads the file of a burst of counters, which a trainer wrote and anything may stand in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec

from pymon.base.errors import InputError
from pymon.base.printable import printable
from pymon.model.counters import CounterBurst

VERSION = 1  # pymon/probe/counters_child.py


class _Sum(msgspec.Struct):
    mean: float | None = None
    per_s: float | None = None


class _File(msgspec.Struct):
    version: int
    device: str
    chip: str
    duration_s: float
    samples_total: int
    samples_lost: int
    overflows: int
    summary: dict[str, _Sum]
    sm_clock_before_hz: float | None = None
    sm_clock_after_hz: float | None = None


_METRICS = [field.name for field in dataclasses.fields(CounterBurst)]


def read(path: Path, pid: int) -> CounterBurst:
    """The burst of process `pid`; InputError where the file cannot be read or is none."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.MsgspecError, RecursionError) as err:
        raise InputError(f"{path.name}: {err}") from None
    if file.version != VERSION:
        raise InputError(f"{path.name}: version {file.version}, {VERSION} is known here")
    sums = {name: one.mean for name, one in file.summary.items()}
    sums |= {
        f"{name}_per_s": one.per_s for name, one in file.summary.items() if one.per_s is not None
    }
    return CounterBurst(
        pid=pid,
        device=printable(file.device),
        chip=printable(file.chip),
        duration_s=file.duration_s,
        samples_total=file.samples_total,
        samples_lost=file.samples_lost,
        overflows=file.overflows,
        sm_clock_before_hz=file.sm_clock_before_hz,
        sm_clock_after_hz=file.sm_clock_after_hz,
        **{name: sums[name] for name in _METRICS if sums.get(name) is not None},
    )

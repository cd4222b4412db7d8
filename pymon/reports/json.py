"""A trace report for machines."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from typing import Any

from pymon.model.trace import TraceReport

VERSION = 1


def render(report: TraceReport) -> str:
    """One JSON object: `version`, `traces` (facts), `diagnoses`, `problems`; absent is null, times
    are seconds.
    """
    return json.dumps({"version": VERSION, **plain(report)}, indent=2, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Dataclasses as objects, enums as their values, tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value

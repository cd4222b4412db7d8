"""What a metric family is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. `name` ends in its base unit, a counter's in `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    since: str = "0.1.0"

"""What the diagnosis says: the cause, its evidence, the fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pymon.base.units import Quantity


class Bottleneck(Enum):
    """What holds the step up; the order is the order of advice."""

    DATA = "data"
    COMPUTE = "compute"
    SYNCHRONISATION = "synchronisation"
    COMMUNICATION = "communication"
    MEMORY = "memory"


class Confidence(Enum):
    """How sure a rule is, by what it had to go on."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured number that speaks for a diagnosis."""

    text: str  # `the loader kept the training thread waiting`
    value: Quantity


@dataclass(frozen=True, slots=True)
class CodeSite:
    """A place in the user's code. `exact_line` is False where only the function's first line is known."""

    file: str
    line: int
    function: str
    call: str  # `Tensor.item`
    calls: int
    total_s: float
    exact_line: bool


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One named cause; `gain_at_most_ratio` is the share of step time that its fix could save, None if unknown."""

    rule: str
    bottleneck: Bottleneck
    title: str
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    advice: tuple[str, ...]
    sites: tuple[CodeSite, ...] = ()
    gain_at_most_ratio: float | None = None

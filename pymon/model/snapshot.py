"""What the daemon knew at one tick."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Section:
    """Base of all sections; one collector gives one section."""


class State(Enum):
    """How one run of a collector ended; each is its own label value, so that absent never looks like broken."""

    OK = "ok"
    ABSENT = "absent"
    FAILED = "failed"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of one collector; `section` is None unless `state` is OK, and `reason` then says why."""

    collector: str
    state: State
    took_s: float
    section: Section | None = None
    reason: str = ""


SectionT = TypeVar("SectionT", bound=Section)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All outcomes of one tick; ask it by section type."""

    taken_mono_ns: int
    taken_real_ns: int
    outcomes: tuple[Outcome, ...]

    def get(self, kind: type[SectionT]) -> SectionT | None:
        """The section of this type, or None where its collector was absent, failed, late or switched off."""
        for outcome in self.outcomes:
            if isinstance(outcome.section, kind):
                return outcome.section
        return None

"""The visible list of rules. Each weighs the facts of one trace and says nothing where evidence
lacks.
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from pymon.diagnosis.rules.implicit_sync import ImplicitSync
from pymon.diagnosis.rules.input_starved import InputStarved
from pymon.model.diagnosis import Diagnosis
from pymon.model.trace import TraceFacts


class Rule(Protocol):
    """One cause that a trace can show."""

    name: ClassVar[str]

    def judge(self, facts: TraceFacts) -> Diagnosis | None:
        """The diagnosis where the cause is proven, else None."""
        ...


ALL: Final[tuple[Rule, ...]] = (InputStarved(), ImplicitSync())

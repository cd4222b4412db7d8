"""Counts what a collector could not read, while it reads the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.model.absence import Absence, Why
from pymon.sources.files import NotPermitted

ValueT = TypeVar("ValueT")
ArgumentsT = ParamSpec("ArgumentsT")


@dataclass(slots=True)
class Absences:
    """Of one run of one collector."""

    _counts: dict[tuple[str, Why], int] = field(default_factory=dict)
    _examples: dict[tuple[str, Why], str] = field(default_factory=dict)

    def get(
        self,
        what: str,
        read: Callable[ArgumentsT, ValueT],
        *args: ArgumentsT.args,
        **kwargs: ArgumentsT.kwargs,
    ) -> ValueT | None:
        """What `read` gives with these arguments, or None, which is then counted with its reason."""
        try:
            return read(*args, **kwargs)
        except (SourceAbsent, SourceFailed) as err:
            self.note_error(what, err)
        return None

    def note_error(self, what: str, err: SourceAbsent | SourceFailed) -> None:
        """That one more is absent for this reason."""
        why = Why.NOT_THERE if isinstance(err, SourceAbsent) else Why.UNREADABLE
        self.note(what, Why.NO_PERMISSION if isinstance(err, NotPermitted) else why, str(err))

    def note(self, what: str, why: Why, example: str, count: int = 1) -> None:
        """That so many more are absent."""
        key = (what, why)
        self._counts[key] = self._counts.get(key, 0) + count
        self._examples.setdefault(key, example)

    def together(self, other: Absences) -> Absences:
        """Both, as a third one that may be noted in."""
        both = Absences(dict(self._counts), {**other._examples, **self._examples})
        for key, count in other._counts.items():
            both._counts[key] = both._counts.get(key, 0) + count
        return both

    def all(self) -> tuple[Absence, ...]:
        """What was noted."""
        return tuple(
            Absence(what, why, count, self._examples[what, why])
            for (what, why), count in sorted(self._counts.items(), key=lambda one: str(one[0]))
        )

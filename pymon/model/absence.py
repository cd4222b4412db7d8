"""What could not be read, and why: absent readings are counted by reason, never exported as 0."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Why(Enum):
    """Each is a label value."""

    NO_PERMISSION = "no_permission"  # it is there, and the daemon's user may not read it
    NOT_THERE = "not_there"  # ended or unplugged meanwhile, or this kernel has none
    UNREADABLE = "unreadable"  # reading broke, or the text is not as the kernel writes it
    OUT_OF_SIGHT = "out_of_sight"  # outside of the daemon's namespace
    TOO_MANY = "too_many"  # beyond the bound of the section


@dataclass(frozen=True, slots=True)
class Absence:
    """So many readings of one kind that are absent for one reason; `example` is one of them in words."""

    what: str
    why: Why
    count: int
    example: str

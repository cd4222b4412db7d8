"""What a detector says, and the incident that grows out of it."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.base.units import Quantity


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a finding is about."""

    attach_id: str
    pid: int
    rank: int | None
    job_id: str

    def __str__(self) -> str:
        who = f"pid {self.pid}" if self.rank is None else f"rank {self.rank} (pid {self.pid})"
        return f"{who} of job {self.job_id}" if self.job_id else who


@dataclass(frozen=True, slots=True)
class Finding:
    """What holds now, by one detector: a level, not an edge. Incidents make begin and end out of it."""

    detector: str
    subject: Subject
    observed: Quantity
    limit: Quantity
    summary: str  # one sentence with the numbers
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Incident:
    """A finding with a life: it begins once, lasts while the finding holds, ends once."""

    incident_id: str
    finding: Finding  # the newest one
    began_real_ns: int
    ended_real_ns: int | None = None

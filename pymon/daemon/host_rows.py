"""What `pymon status` shows of jobs and of readings that are not there."""

from __future__ import annotations

from typing import Any

from pymon.model.jobs import JobsSection
from pymon.model.snapshot import Snapshot

_ROWS_MAX = 64


def job_rows(newest: Snapshot | None) -> list[dict[str, Any]]:
    """Training processes with their GPUs and jobs, without a probe too; then what holds a GPU and is dead."""
    section = newest.get(JobsSection) if newest else None
    if section is None:
        return []
    rows = [
        {
            "pid": process.pid,
            "rank": process.rank,
            "job": process.job_id,
            "user": process.user,
            "gpus": " ".join(str(gpu) for gpu, _, _ in process.gpus),
            "group": process.identity.group,
            "probe": bool(process.attach_id),
        }
        for process in section.processes
    ]
    rows += [
        {"pid": held.pid, "gpus": str(held.gpu), "group": held.owner.value}
        for held in section.holdings
        if held.owner.value in ("gone", "unknown")
    ]
    return rows[:_ROWS_MAX]


def absent_rows(newest: Snapshot | None) -> list[dict[str, Any]]:
    """Readings that are absent, with their reason and one of them in words."""
    return [
        {
            "collector": outcome.collector,
            "reading": absence.what,
            "why": absence.why.value,
            "count": absence.count,
            "example": absence.example,
        }
        for outcome in (newest.outcomes if newest else ())
        for absence in getattr(outcome.section, "absent", ())
    ][:_ROWS_MAX]

"""Where the wall time of each rank of a job goes, over all the processes that it had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.collectors.watching import Newest, no_snapshot
from pymon.model.progress import WALL_STATES, GoodputSection, RunState, WallTime
from pymon.model.training import TrainingProcess, TrainingSection

# A step of five times the mean is one that was blocked (arXiv 2506.08528), as in csrc/core/step_clock.cpp.
BLOCKED_STEPS = 5
_RANKS_MAX = 1024  # remembered; a node's for many jobs

Key = tuple[str, int | None]
Spent = dict[str, float]


@dataclass(slots=True)
class _Rank:
    newest: TrainingProcess
    ended_real_ns: int | None = None
    past_s: Spent = field(default_factory=lambda: dict.fromkeys(WALL_STATES, 0.0))
    restarts: int = 0
    before_s: float = 0.0  # of the newest process's age: an image before an `exec` had it
    shown_s: Spent = field(default_factory=lambda: dict.fromkeys(WALL_STATES, 0.0))


@dataclass(slots=True)
class GoodputCollector:
    """Gives one `GoodputSection`.

    Source: the pages of the training processes, as the tick before read them. A process that starts under the job
        and rank of one that ended is its restart; the time between them, and its start-up, is `restart`.
    Cost: no system call.
    Errors: `SourceAbsent` where no process has a page that tells. What the daemon did not see (before it began) is
        known by the launcher's own count of restarts alone, and its time by nobody.
    """

    name: ClassVar[str] = "goodput"
    interval_s: ClassVar[float] = 1.0
    timeout_s: ClassVar[float] = 0.5
    newest: Newest = no_snapshot
    _ranks: dict[Key, _Rank] = field(default_factory=dict)

    def collect(self) -> GoodputSection:
        """Read once."""
        snapshot = self.newest()
        training = snapshot.get(TrainingSection) if snapshot else None
        found = [p for p in training.processes if p.progress is not None] if training else []
        if snapshot is None or not found:
            raise SourceAbsent("no training process to look at")
        shown: list[Key] = []
        for process in sorted(found, key=lambda one: one.attached_real_ns):
            key = self._note(process, snapshot.taken_real_ns)
            if key is not None and key not in shown:
                shown.append(key)
        while len(self._ranks) > _RANKS_MAX:
            del self._ranks[next(iter(self._ranks))]
        return GoodputSection(tuple(self._rows(shown)))

    def _note(self, process: TrainingProcess, now_ns: int) -> Key | None:
        """Whose row it belongs to; None for an earlier process of a row that has gone on."""
        name = process.job_id or process.run_id
        key = (name or process.attach_id, process.rank)
        rank = self._ranks.get(key)
        if rank is not None and rank.newest.attach_id != process.attach_id:
            if process.attached_real_ns <= rank.newest.attached_real_ns:
                return None
            if rank.newest.ended is None:  # both live: two programs of one job that have no ranks
                key = (process.attach_id, process.rank)
                rank = self._ranks.get(key)
            else:
                self._restart(rank, process, now_ns)
        if rank is None:
            rank = self._ranks[key] = _Rank(process)
        rank.newest = process
        if process.ended is not None and rank.ended_real_ns is None:
            rank.ended_real_ns = now_ns
        return key

    def _restart(self, rank: _Rank, process: TrainingProcess, now_ns: int) -> None:
        rank.past_s = _sum(rank.past_s, _spent(rank.newest, rank.restarts > 0, rank.before_s))
        began_ns = now_ns - int((_age_s(process) or 0.0) * 1e9)
        gap_s = (began_ns - (rank.ended_real_ns or began_ns)) / 1e9
        rank.past_s["restart"] += max(0.0, gap_s)
        rank.before_s = max(0.0, -gap_s)
        rank.restarts += 1
        rank.ended_real_ns = None

    def _rows(self, keys: list[Key]) -> Iterator[WallTime]:
        for key in keys:
            rank = self._ranks[key]
            process = rank.newest
            counted = process.progress.restarts if process.progress else None
            restarted = rank.restarts > 0 or bool(counted)
            now_s = _sum(rank.past_s, _spent(process, restarted, rank.before_s))
            # What was counted stays counted: a counter that falls reads as a restart of the daemon.
            rank.shown_s = {state: max(rank.shown_s[state], now_s[state]) for state in WALL_STATES}
            named = bool(process.job_id or process.run_id)
            yield WallTime(
                rank=process.rank,
                job_id=process.job_id,
                pid=process.pid,
                spent_s_total=tuple(rank.shown_s[state] for state in WALL_STATES),
                restarts_total=max(rank.restarts, counted or 0)
                if named or counted is not None
                else None,
            )


def _spent(process: TrainingProcess, restarted: bool, before_s: float) -> Spent:
    """By state, up to the end of the last step; to the end of the process where it has ended.

    `before_s` of its age are not its own.
    """
    spent = dict.fromkeys(WALL_STATES, 0.0)
    progress = process.progress
    if progress is None:
        return spent
    spent["evaluation"] = process.evaluation_s_total
    spent["checkpoint"] = process.checkpoint_s_total
    open_s = process.open_step_age_s
    age_s = progress.process_age_s
    if age_s is not None:
        age_s = max(0.0, age_s - before_s)
    if progress.startup_s is None or open_s is None:
        if process.ended is not None and age_s is not None:
            spent["restart" if restarted else "startup"] = age_s
        return spent
    spent["restart" if restarted else "startup"] = max(0.0, progress.startup_s - before_s)
    spent["stall"] = process.stall_s_total
    steps_s = process.step_histogram.sum_s - progress.first_step_s
    spent["training"] = max(0.0, steps_s - process.stall_s_total)
    if age_s is not None:
        spent["other"] = max(0.0, age_s - open_s - sum(spent.values()))
    usual_s = process.usual_step_s
    hung = progress.state is RunState.TRAINING and usual_s is not None
    if hung and usual_s is not None and open_s >= BLOCKED_STEPS * usual_s:
        spent["stall"] += open_s - usual_s  # and it goes on
    elif process.ended is not None:
        spent["other"] += open_s
    return spent


def _age_s(process: TrainingProcess) -> float | None:
    return process.progress.process_age_s if process.progress else None


def _sum(one: Spent, other: Spent) -> Spent:
    return {state: one[state] + other[state] for state in WALL_STATES}

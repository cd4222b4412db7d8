"""When each rank of this node began a collective, matched: who waited for whom.

Ranks of one node share a clock. Those that tell of the same job, group, backend and group size belong together; where
two of them claim the same rank, two jobs cannot be told apart, and nothing is said of that group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pymon.link.collectives_section import CollectivesSample
from pymon.link.recorder_section import RecorderSample
from pymon.model.recorded import DdpWait, GroupWait, Waits

KEEP = 512  # collectives of a group that wait for ranks which are read later; a page shows 96


class Member(NamedTuple):
    """A living process; `job` tells whose ranks belong together."""

    attach_id: str
    job: tuple[int, str, str, int | None]
    rank: int | None
    collectives: CollectivesSample | None
    recorder: RecorderSample | None


@dataclass(slots=True)
class _Sums:
    matched: int = 0
    wait_ns: int = 0
    transfer_ns: int = 0


@dataclass(slots=True)
class Arrivals:
    """One per daemon."""

    _begun: dict[tuple[object, ...], dict[int, dict[str, int]]] = field(default_factory=dict)
    _done: dict[tuple[object, ...], int] = field(default_factory=dict)
    _waits: dict[str, dict[tuple[str, str], _Sums]] = field(default_factory=dict)
    _iterations: dict[tuple[object, ...], int] = field(default_factory=dict)
    _ddp: dict[str, _Sums] = field(default_factory=dict)

    def look(self, members: Iterable[Member]) -> dict[str, Waits]:
        """Takes in what all pages say now; the waits of each process by attach id."""
        living = list(members)
        groups: dict[tuple[object, ...], dict[str, tuple[int, dict[int, int]]]] = {}
        for member in living:
            for key, rank, begun in _arrivals_of(member):
                groups.setdefault(key, {})[member.attach_id] = rank, begun
        for key, ranks in groups.items():
            if len({rank for rank, _ in ranks.values()}) == len(ranks) > 1:
                self._match(key, {attach_id: begun for attach_id, (_, begun) in ranks.items()})
        self._match_ddp(living)
        self._forget({member.attach_id for member in living}, set(groups))
        return {member.attach_id: self._waits_of(member.attach_id) for member in living}

    def _match(self, key: tuple[object, ...], ranks: dict[str, dict[int, int]]) -> None:
        waiting = self._begun.setdefault(key, {})
        done = self._done.get(key, 0)
        if max((max(begun, default=0) for begun in ranks.values()), default=0) < done:
            waiting.clear()  # the group was made anew and counts from one
            done = 0
        for attach_id, begun in ranks.items():
            for sequence, real_ns in begun.items():
                if sequence > done:
                    waiting.setdefault(sequence, {})[attach_id] = real_ns
        for sequence in sorted(waiting):
            if waiting[sequence].keys() == ranks.keys():
                last_ns = max(waiting[sequence].values())
                for attach_id, real_ns in waiting.pop(sequence).items():
                    of_group = self._waits.setdefault(attach_id, {})
                    sums = of_group.setdefault((str(key[1]), str(key[2])), _Sums())
                    sums.matched += 1
                    sums.wait_ns += last_ns - real_ns
                done = max(done, sequence)
        self._done[key] = done
        for sequence in sorted(waiting)[:-KEEP]:
            del waiting[sequence]

    def _match_ddp(self, living: list[Member]) -> None:
        jobs: dict[tuple[object, ...], dict[str, CollectivesSample]] = {}
        ranks: dict[tuple[object, ...], set[int | None]] = {}
        for member in living:
            if (said := member.collectives) is not None and said.ddp_samples_total:
                jobs.setdefault(member.job, {})[member.attach_id] = said
                ranks.setdefault(member.job, set()).add(member.rank)
        for job, pages in jobs.items():
            same = {(page.ddp_last_iteration, page.ddp_bytes) for page in pages.values()}
            if len(same) != 1 or len(ranks[job]) != len(pages) or len(pages) < 2:
                continue  # not read at the same moment, or not one job
            ((iteration, _),) = same
            if self._iterations.get(job) == iteration:
                continue
            self._iterations[job] = iteration
            last_ns = max(page.ddp_last_begin_real_ns for page in pages.values())
            end_ns = min(
                page.ddp_last_begin_real_ns + page.ddp_last_comm_ns for page in pages.values()
            )
            for attach_id, page in pages.items():
                sums = self._ddp.setdefault(attach_id, _Sums())
                sums.matched += 1
                sums.wait_ns += last_ns - page.ddp_last_begin_real_ns
                sums.transfer_ns += max(0, end_ns - last_ns)

    def _forget(self, living: set[str], groups: set[tuple[object, ...]]) -> None:
        for attach_id in self._waits.keys() - living:
            del self._waits[attach_id]
        for attach_id in self._ddp.keys() - living:
            del self._ddp[attach_id]
        jobs = {key[0] for key in groups}
        for key in [key for key in self._begun if key[0] not in jobs]:
            self._begun.pop(key)
            self._done.pop(key, None)

    def _waits_of(self, attach_id: str) -> Waits:
        ddp = self._ddp.get(attach_id)
        return Waits(
            groups=tuple(
                GroupWait(group, backend, sums.matched, sums.wait_ns / 1e9)
                for (group, backend), sums in self._waits.get(attach_id, {}).items()
            ),
            ddp=None
            if ddp is None
            else DdpWait(ddp.matched, ddp.wait_ns / 1e9, ddp.transfer_ns / 1e9),
        )


def _arrivals_of(
    member: Member,
) -> Iterable[tuple[tuple[object, ...], int, dict[int, int]]]:
    """Per group: whose it is, the rank in it, and when each collective was begun."""
    if member.recorder is None or member.collectives is None:
        return
    known = {group.name: (group.size, group.rank) for group in member.collectives.groups}
    for place, group in enumerate(member.recorder.groups):
        begun = {number: at for slot, number, at in member.recorder.arrivals if slot == place}
        if group.name in known:
            size, rank = known[group.name]
            yield (member.job, group.name, group.backend, size), rank, begun

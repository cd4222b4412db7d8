"""Who waited for whom, from when each rank began the same collectives."""

from pymon.collectors.arrivals import KEEP, Arrivals, Member
from pymon.link.collectives_section import CollectivesSample, GroupSample
from pymon.link.recorder_section import RecordedGroup, RecorderSample

MS = 10**6


def member(rank, begun, job="job", ddp=None, name="0", group_rank=None):
    """`begun`: sequence -> milliseconds; `ddp`: iteration, begin and duration in milliseconds."""
    iteration, begin, took = ddp or (0, 0, 0)
    groups = (GroupSample(name, 2, rank if group_rank is None else group_rank, 9, 0),)
    collectives = CollectivesSample(
        1, int(ddp is not None), 0, 0, iteration, begin * MS, took * MS, 64, groups
    )
    recorder = RecorderSample(
        1, 0, 0, 0, 0, 0, 0, "",
        groups=(RecordedGroup(name, "gloo", 9, None, 9, None, 0, 0),),
        ops=(),
        arrivals=tuple((0, sequence, at * MS) for sequence, at in begun.items()),
    )  # fmt: skip
    return Member(f"{job}{rank}", (0, job, "", 2), rank, collectives, recorder)


def wait_ms(waits):
    ((group),) = waits.groups
    return group.matched_total, round(group.wait_s_total * 1e3, 6)


def test_the_rank_that_comes_last_waits_least():
    found = Arrivals().look([member(0, {1: 100, 2: 200}), member(1, {1: 130, 2: 250})])
    assert wait_ms(found["job0"]) == (2, 80)
    assert wait_ms(found["job1"]) == (2, 0)


def test_ranks_that_are_read_at_different_moments_still_match_and_each_once():
    arrivals = Arrivals()
    assert arrivals.look([member(0, {1: 100, 2: 200}), member(1, {})])["job0"].groups == ()
    for _ in range(3):
        found = arrivals.look([member(0, {4: 400}), member(1, {1: 101, 2: 202, 3: 303})])
    assert wait_ms(found["job0"]) == (2, 3)
    found = arrivals.look([member(0, {4: 400}), member(1, {4: 390})])
    assert wait_ms(found["job1"]) == (3, 10)


def test_two_jobs_do_not_match():
    found = Arrivals().look([member(0, {1: 1}), member(1, {1: 9}, job="other")])
    assert {waits.groups for waits in found.values()} == {()}


def test_where_two_claim_the_same_rank_nothing_is_said():
    claims = [member(0, {1: 1}), member(1, {1: 9}, group_rank=0)]
    assert {waits.groups for waits in Arrivals().look(claims).values()} == {()}


def test_a_group_that_was_made_anew_counts_from_one():
    arrivals = Arrivals()
    arrivals.look([member(0, {100: 1}), member(1, {100: 2})])
    found = arrivals.look([member(0, {3: 10}), member(1, {3: 14})])
    assert wait_ms(found["job0"]) == (2, 5)


def test_what_a_rank_never_tells_is_not_kept_for_good():
    arrivals = Arrivals()
    for first in range(1, 20 * KEEP, KEEP):
        arrivals.look([member(0, dict.fromkeys(range(first, first + KEEP), 1)), member(1, {})])
    assert all(len(waiting) <= KEEP for waiting in arrivals._begun.values())
    arrivals.look([])
    assert not arrivals._begun
    assert not arrivals._waits


def test_ddp_splits_into_wait_and_transfer_where_all_ranks_tell_of_one_iteration():
    arrivals = Arrivals()
    ranks = [member(0, {}, ddp=(7, 100, 34)), member(1, {}, ddp=(7, 131, 3))]
    for _ in range(2):  # the same iteration counts once
        found = arrivals.look(ranks)
    ahead, behind = found["job0"].ddp, found["job1"].ddp
    assert (ahead.matched_total, behind.matched_total) == (1, 1)
    assert (round(ahead.wait_s_total, 6), behind.wait_s_total) == (0.031, 0)
    assert round(ahead.transfer_s_total, 6) == round(behind.transfer_s_total, 6) == 0.003


def test_ddp_of_different_iterations_is_not_compared():
    ranks = [member(0, {}, ddp=(7, 100, 34)), member(1, {}, ddp=(8, 231, 3))]
    assert {waits.ddp for waits in Arrivals().look(ranks).values()} == {None}

"""Wall time of ranks: it sums, survives restarts of the job, and shows a hang before it ends."""

from dataclasses import replace

import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.goodput import GoodputCollector
from pymon.model.distribution import Histogram
from pymon.model.loader import Loader
from pymon.model.progress import WALL_STATES, Progress, RunState
from tests.detectors.histories import PROCESS, snapshot

NO_LOADER = Loader(
    None, None, None, None, "", "", None, 0, 0, 0.0, 0.0, 0, 0, 0, 0, 0, 0, Histogram(1e-6, (), 0.0)
)
PROGRESS = Progress(
    state=RunState.TRAINING,
    state_age_s=90.0,
    process_age_s=100.0,
    startup_s=10.0,
    first_step_s=2.0,
    evaluations_total=1,
    evaluation_batches_total=4,
    saves_total=1,
    saves_failed_total=0,
    background_save_s_total=0.0,
    last_save_real_ns=None,
    last_save_s=1.0,
    flops_per_sample=None,
    flops_per_token=None,
    restarts=None,
    loader=NO_LOADER,
)
# 100 s old: 10 s start-up (with a first step of 2 s), steps of 62 s, 20 s evaluation, 5 s checkpoint, 4 s since then.
TRAINER = replace(
    PROCESS,
    step_histogram=Histogram(1e-6, (0,) * 32, 2.0 + 60.0),
    evaluation_s_total=20.0,
    checkpoint_s_total=5.0,
    stall_s_total=3.0,
    usual_step_s=1.0,
    open_step_age_s=4.0,
    progress=PROGRESS,
)


class Node:
    def __init__(self):
        self.now = None
        self.collector = GoodputCollector(lambda: self.now)

    def see(self, at_s, *processes):
        self.now = snapshot(at_s, *processes)
        return self.collector.collect().ranks


def spent(rank):
    return dict(zip(WALL_STATES, rank.spent_s_total, strict=True))


def test_the_states_sum_to_the_time_up_to_the_last_step():
    (rank,) = Node().see(1000, TRAINER)
    assert spent(rank) == {
        "startup": 10.0,
        "training": 57.0,
        "evaluation": 20.0,
        "checkpoint": 5.0,
        "stall": 3.0,
        "restart": 0.0,
        "other": 1.0,
    }
    assert sum(rank.spent_s_total) == 100.0 - 4.0


def test_before_the_first_step_nothing_is_told_and_one_that_dies_there_only_started():
    node = Node()
    starting = replace(TRAINER, open_step_age_s=None, progress=replace(PROGRESS, startup_s=None))
    starting = replace(starting, evaluation_s_total=0.0, checkpoint_s_total=0.0)
    assert sum(node.see(1000, starting)[0].spent_s_total) == 0.0
    (rank,) = node.see(1010, replace(starting, ended="killed by SIGKILL"))
    assert spent(rank)["startup"] == 100.0


def test_a_hang_grows_while_it_lasts():
    node = Node()
    seen = []
    for more_s in (0.0, 10.0, 20.0):
        older = replace(PROGRESS, process_age_s=100.0 + more_s)
        hung = replace(TRAINER, open_step_age_s=4.0 + more_s, progress=older)
        seen.append(spent(node.see(1000 + more_s, hung)[0])["stall"])
    assert seen == [3.0, 3.0 + 13.0, 3.0 + 23.0]


@pytest.mark.parametrize("state", [RunState.EVALUATING, RunState.CHECKPOINTING])
def test_a_long_evaluation_or_save_is_no_hang(state):
    busy = replace(TRAINER, open_step_age_s=50.0, progress=replace(PROGRESS, state=state))
    assert spent(Node().see(1000, busy)[0])["stall"] == 3.0


def test_a_restart_of_the_job_goes_on_where_it_was():
    node = Node()
    node.see(1000, TRAINER)
    before = spent(node.see(1001, replace(TRAINER, ended="killed by SIGKILL"))[0])
    again = replace(
        TRAINER,
        attach_id="b" * 32,
        pid=200,
        attached_real_ns=1040 * 10**9,
        progress=replace(PROGRESS, process_age_s=20.0, startup_s=12.0),
        step_histogram=Histogram(1e-6, (0,) * 32, 2.0 + 5.0),
        evaluation_s_total=0.0,
        checkpoint_s_total=0.0,
        stall_s_total=0.0,
        open_step_age_s=1.0,
    )
    (rank,) = node.see(1051, replace(TRAINER, ended="killed by SIGKILL"), again)
    assert (rank.pid, rank.restarts_total) == (200, 1)
    now = spent(rank)
    assert now["restart"] == 30.0 + 12.0  # from 1001 to 1031, and its start-up
    assert now["startup"] == before["startup"]
    assert now["training"] == before["training"] + 5.0
    assert now["evaluation"] == 20.0


def test_the_life_before_an_exec_is_not_counted_again():
    """The new image has the process's start, and so its whole age."""
    node = Node()
    node.see(1000, TRAINER)
    older = replace(PROGRESS, process_age_s=102.0)
    replaced = replace(TRAINER, ended="replaced by exec", progress=older)
    again = replace(
        TRAINER,
        attach_id="b" * 32,
        attached_real_ns=1008 * 10**9,
        progress=replace(PROGRESS, process_age_s=120.0, startup_s=112.0),
        step_histogram=Histogram(1e-6, (0,) * 32, 2.0 + 6.0),
        evaluation_s_total=0.0,
        checkpoint_s_total=0.0,
        stall_s_total=0.0,
        open_step_age_s=1.0,
    )
    node.see(1002, replaced)
    (rank,) = node.see(1020, replaced, again)
    now = spent(rank)
    assert now["restart"] == 10.0
    assert now["training"] == 57.0 + 6.0
    assert sum(now.values()) == 120.0 - 1.0


def test_a_launcher_that_counts_restarts_is_believed():
    (rank,) = Node().see(1000, replace(TRAINER, progress=replace(PROGRESS, restarts=2)))
    assert rank.restarts_total == 2
    assert spent(rank)["restart"] == 10.0  # this start-up was one
    assert spent(rank)["startup"] == 0.0


def test_without_a_name_no_process_is_taken_for_another_ones_restart():
    node = Node()
    nameless = replace(TRAINER, job_id="")
    node.see(1000, nameless)
    node.see(1001, replace(nameless, ended="exited"))
    later = replace(nameless, attach_id="b" * 32, attached_real_ns=10**12)
    ranks = node.see(1002, replace(nameless, ended="exited"), later)
    assert [rank.restarts_total for rank in ranks] == [None, None]


def test_two_that_live_at_once_are_no_restart():
    ranks = Node().see(1000, TRAINER, replace(TRAINER, attach_id="b" * 32, attached_real_ns=9))
    assert [rank.restarts_total for rank in ranks] == [0, 0]
    assert ranks[0].spent_s_total == ranks[1].spent_s_total


def test_what_was_counted_stays_counted():
    node = Node()
    node.see(1000, replace(TRAINER, open_step_age_s=10.0))
    (rank,) = node.see(1001, TRAINER)  # the hang turned out to be an evaluation
    assert spent(rank)["stall"] == 3.0 + 9.0


def test_without_a_page_that_tells_it_is_absent():
    with pytest.raises(SourceAbsent):
        Node().see(1000, PROCESS)
    with pytest.raises(SourceAbsent):
        GoodputCollector().collect()

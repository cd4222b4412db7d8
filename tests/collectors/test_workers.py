import os

import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.workers import WorkersCollector
from pymon.model.jobs import JobsSection
from pymon.model.memory import HostUse, ProcessMemory
from pymon.sources.files import NotPermitted
from pymon.sources.process import Processes
from tests.collectors import nodes
from tests.collectors.nodes import watching, whys
from tests.host_tree import HostTree

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


def collector(tree, *pids):
    return WorkersCollector(Processes(tree.roots.proc), watching(*pids))


def trainer(tree, *workers, pid=7, **more):
    """A trainer and its workers, by pid; `more` is the workers' own."""
    tree.process(pid, children=workers)
    for number in workers:
        tree.process(number, parent=pid, **({"name": "pt_data_worker"} | more))


def one(collector):
    (found,) = collector.collect().trainers
    return found


def test_a_trainer_and_its_workers(tree):
    trainer(tree, 8, 9, cpu_ticks=(TICKS, TICKS), cpus="0")
    tree.process(9, "pt_data_worker", state="D", parent=7, cpu_ticks=(TICKS, 0), cpus="3")

    found = one(collector(tree, 7))
    assert (found.pid, found.rank, found.job_id, found.state) == (7, 0, "77", "sleeping")
    assert found.cpu_s_total == 50 / TICKS
    assert (found.descriptors, found.descriptors_max) == (3, 1024)
    assert (found.workers, found.workers_by_state) == (2, (("sleeping", 1), ("uninterruptible", 1)))
    assert (found.workers_cpu_s_total, found.workers_descriptors) == (3.0, 6)
    assert (found.workers_usable_cpus, found.workers_started_total) == (2, 2)


def test_workers_pinned_to_one_processor_share_it(tree):
    trainer(tree, *range(8, 16), cpus="5")

    assert one(collector(tree, 7)).workers_usable_cpus == 1


def test_the_time_of_workers_that_ended_stays_counted(tree):
    trainer(tree, 8, 9, cpu_ticks=(TICKS, 0))
    workers = collector(tree, 7)
    assert one(workers).workers_cpu_s_total == 2.0

    tree.end(8)
    tree.end(9)
    trainer(tree, 10, start=2000, cpu_ticks=(TICKS, 0))
    found = one(workers)
    assert (found.workers, found.workers_cpu_s_total, found.workers_started_total) == (1, 3.0, 3)


def test_a_pid_that_came_again_is_another_worker(tree):
    trainer(tree, 8, cpu_ticks=(5 * TICKS, 0))
    workers = collector(tree, 7)
    one(workers)

    trainer(tree, 8, start=2000, cpu_ticks=(TICKS, 0))
    found = one(workers)
    assert (found.workers_cpu_s_total, found.workers_started_total) == (6.0, 2)


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        (("python", "train.py"), 1),  # forked: the trainer's own command line
        (("python", "-c", "from multiprocessing.spawn import x", "--multiprocessing-fork"), 1),
        (("python", "-c", "from multiprocessing.resource_tracker import main"), 0),
        (("ffmpeg",), 0),
        ((), 0),
    ],
)
def test_before_torch_named_them_workers_are_told_by_how_they_were_started(
    tree, arguments, workers
):
    trainer(tree, 8, name="python", arguments=arguments)

    found = one(collector(tree, 7))
    assert (found.workers, found.other_children) == (workers, 1 - workers)


def test_beside_named_workers_other_children_are_none(tree):
    trainer(tree, 8, 9)
    tree.process(9, "python", parent=7)

    found = one(collector(tree, 7))
    assert (found.workers, found.other_children) == (1, 1)


def test_a_launcher_has_its_trainers_not_as_workers(tree):
    trainer(tree, 8, 9, name="python")

    launcher = collector(tree, 7, 8, 9).collect().trainers[0]
    assert (launcher.workers, launcher.other_children) == (0, 0)


def test_workers_of_another_thread_are_found_where_the_main_one_has_none(tree):
    tree.process(7, threads=3)
    tree.write("proc/7/task/71/children", "8 ")
    tree.process(8, "pt_data_worker", parent=7)

    assert one(collector(tree, 7)).workers == 1


def test_one_that_ends_between_listing_and_reading_is_left_out(tree):
    trainer(tree, 8)
    tree.write("proc/7/task/7/children", "8 9 10 ")
    tree.process(10, "pt_data_worker", parent=1)  # another's by now

    section = collector(tree, 7).collect()
    assert section.trainers[0].workers == 1
    assert section.absent == ()


def test_descriptors_that_may_not_be_counted_are_none_and_say_why(tree, monkeypatch):
    trainer(tree, 8)

    def refuse(self, pid):
        raise NotPermitted(f"/proc/{pid}/fd: Permission denied")

    monkeypatch.setattr(Processes, "descriptors", refuse)
    section = collector(tree, 7).collect()
    (found,) = section.trainers
    assert (found.descriptors, found.workers_descriptors, found.workers) == (None, None, 1)
    assert whys(section) == {("descriptors", "no_permission"): 2}


def test_where_descriptors_may_not_be_counted_the_probes_own_word_stands(tree, monkeypatch):
    trainer(tree, 8)

    def refuse(self, pid):
        raise NotPermitted(f"/proc/{pid}/fd: Permission denied")

    monkeypatch.setattr(Processes, "descriptors", refuse)
    told = ProcessMemory((), HostUse(descriptors=24, workers_descriptors=88))
    newest = nodes.known(
        nodes.trainer(7, memory=told), jobs=JobsSection((nodes.job_process(7),), (), (), True)
    )
    section = WorkersCollector(Processes(tree.roots.proc), newest).collect()
    (found,) = section.trainers
    assert (found.descriptors, found.workers_descriptors) == (24, 88)
    assert section.absent == ()


@pytest.mark.parametrize("name", [b"\n\xff", b") Z 1", b'"\\', "pt_data_worker\u2028".encode()])
def test_hostile_names_of_children_break_nothing(tree, name):
    trainer(tree, 8, name=name, arguments=("\x1b[31m", '"\n'))

    assert one(collector(tree, 7)).workers == 0


@pytest.mark.parametrize("file", ["stat", "status", "cmdline", "limits", "task/7/children"])
@pytest.mark.parametrize("text", [None, b"", b"\xff\x00 garbage \n\n"])
def test_each_file_of_a_trainer_missing_or_odd_costs_no_other_trainer(tree, file, text):
    trainer(tree, 8)
    trainer(tree, 18, pid=17)
    if text is None:
        (tree.proc / "7" / file).unlink()
    else:
        tree.write(f"proc/7/{file}", text)

    found = {one.pid: one for one in collector(tree, 7, 17).collect().trainers}
    assert found[17].workers == 1


@pytest.mark.parametrize("file", ["stat", "status", "cmdline"])
@pytest.mark.parametrize("text", [None, b"", b"\xff\x00 garbage \n\n"])
def test_each_file_of_a_worker_missing_or_odd_costs_no_other_worker(tree, file, text):
    trainer(tree, 8, 9)
    if text is None:
        (tree.proc / "8" / file).unlink()
    else:
        tree.write(f"proc/8/{file}", text)

    assert one(collector(tree, 7)).workers == (1 if file == "stat" else 2)


def test_a_process_with_thousands_of_children_is_bounded(tree):
    trainer(tree, *range(1000, 1600))

    section = collector(tree, 7).collect()
    assert section.trainers[0].workers == 512
    assert whys(section)["children", "too_many"] == 88


def test_nobody_to_look_at(tree):
    with pytest.raises(SourceAbsent):
        collector(tree).collect()

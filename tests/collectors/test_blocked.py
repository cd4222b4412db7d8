import time

import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.blocked import BlockedCollector
from pymon.sources.process import Processes
from tests.clock_double import ClockDouble
from tests.collectors.nodes import whys
from tests.host_tree import KERNEL_THREAD, HostTree


@pytest.fixture
def tree(tmp_path):
    tree = HostTree(tmp_path)
    tree.process(1, "systemd")
    return tree


@pytest.fixture
def blocked(tree):
    return BlockedCollector(Processes(tree.roots.proc), ClockDouble())


def look(blocked):
    blocked.clock.now_s += 15
    return blocked.collect()


def test_who_waits_and_did_not_run_in_between_is_stuck(tree, blocked):
    tree.process(7, "python", state="D", switches=(5, 5))
    tree.process(8, "cp", state="D", switches=(5, 5))
    tree.process(9, "python", state="R")
    assert (look(blocked).seen, look(blocked).stuck) == (2, 2)

    tree.process(8, "cp", state="D", switches=(9, 5))  # it reads and reads
    section = look(blocked)
    assert (section.seen, section.stuck) == (2, 1)
    (one,) = section.processes
    assert (one.pid, one.name, one.blocked_s) == (7, "python", 30.0)

    tree.process(7, "python", state="S")
    assert [one.pid for one in look(blocked).processes] == [8]  # which has not run since either


def test_kernel_threads_rest_in_it_and_do_not_count(tree, blocked):
    tree.process(7, "kworker/0:1", state="D", flags=KERNEL_THREAD)

    assert look(blocked).seen == 0


def test_another_process_of_the_same_pid_is_not_stuck(tree, blocked):
    tree.process(7, state="D", start=1)
    look(blocked)
    tree.process(7, state="D", start=2)

    assert look(blocked).stuck == 0


def test_hostile_names_are_printable(tree, blocked):
    tree.process(7, b'\x1b[31m"\n\xff', state="D")
    look(blocked)

    (one,) = look(blocked).processes
    assert one.name.isprintable()


def test_what_is_odd_or_ended_costs_no_other(tree, blocked):
    tree.process(7, state="D")
    tree.write("proc/8/stat", "garbage")
    (tree.proc / "9").mkdir()  # listed, and gone when it is read
    look(blocked)

    section = look(blocked)
    assert (section.seen, section.stuck) == (1, 1)
    assert whys(section) == {("process", "unreadable"): 1}


def test_who_does_not_see_the_processes_of_others_says_so_instead_of_none(tree, blocked):
    tree.end(1)
    tree.process(7, state="D")

    with pytest.raises(SourceAbsent):
        look(blocked)


def test_five_hundred_processes_take_no_time_to_speak_of(tree, blocked):
    for pid in range(1000, 1500):
        tree.process(pid, state="D")
    look(blocked)

    began_s = time.thread_time()
    section = look(blocked)
    assert time.thread_time() - began_s < 0.5  # measured: 0.04 s
    assert (section.seen, section.stuck, len(section.processes)) == (500, 500, 20)

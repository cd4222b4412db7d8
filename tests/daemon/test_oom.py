"""The counters of a control group name an end by the out-of-memory killer, each count one, and nothing else."""

import pytest

from pymon.daemon.oom import OomWatch
from pymon.sources.cgroup_paths import CgroupPaths
from pymon.sources.cgroupfs import Cgroupfs
from pymon.sources.process import Processes
from tests.clock_double import ClockDouble
from tests.host_tree import HostTree

ONE, TWO = "a" * 32, "b" * 32


class Host:
    """A tree with one group of either version, and two trainers in it."""

    def __init__(self, folder, version):
        self.tree, self.version = HostTree(folder), version
        self.clock = ClockDouble(1000.0)
        for pid in (7, 8):
            self.tree.process(pid, cgroup="0::/job\n" if version == 2 else "4:memory:/job\n")
        self.count(0, 0)
        roots = self.tree.roots
        cgroups = Cgroupfs(CgroupPaths(roots))
        self.watch = OomWatch(Processes(roots.proc), cgroups, self.clock)
        self.watch.begin(ONE, 7)
        self.watch.begin(TWO, 8)

    def count(self, kills, hits):
        if self.version == 2:
            self.tree.cgroup_v2("/job", memory_events=f"low 0\nmax {hits}\noom_kill {kills}\n")
            return
        control = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
        if kills is None:
            control = "oom_kill_disable 0\nunder_oom 0\n"  # before Linux 4.13
        self.tree.cgroup_v1(
            "memory", "/job", memory_oom_control=control, memory_failcnt=f"{hits}\n"
        )

    def look(self, after_s=5.0):
        self.clock.now_s += after_s
        self.watch.look()

    def word(self, attach_id=ONE, by_kill=True):
        return self.watch.word(attach_id, self.watch.at_end(attach_id), by_kill)


@pytest.fixture(params=[1, 2])
def host(tmp_path, request):
    return Host(tmp_path / "host", request.param)


def test_a_rise_around_a_kill_explains_it(host):
    host.look()
    host.count(1, 37)
    host.clock.now_s += 2.0
    word = host.word()
    assert word.explains
    (line,) = word.evidence
    assert "control group /job: out-of-memory kills rose from 0 to 1" in line
    assert "memory limit was hit 37 times, within 7 s" in line


def test_a_look_between_the_kill_and_its_discovery_hides_nothing(host):
    host.look()
    host.count(1, 37)
    host.look(after_s=0.01)
    assert host.word().explains


def test_a_kill_of_long_ago_explains_nothing(host):
    host.count(1, 37)
    for _ in range(3):
        host.look()
    assert host.word() == (host.watch.word("unknown", None, True))
    assert not host.word(TWO).explains


def test_each_count_explains_one_end_in_order(host):
    """A launcher kills the other ranks when the first was out of memory."""
    host.look()
    host.count(1, 1)
    assert host.word(ONE).explains
    other = host.word(TWO)
    assert not other.explains
    assert "rose from 0 to 1" in other.evidence[0]


def test_both_are_explained_where_both_were_counted(host):
    host.look()
    host.count(2, 1)
    assert [host.word(one).explains for one in (ONE, TWO)] == [True, True]


def test_another_end_beside_a_rise_is_told_and_not_explained(host):
    """A loader's worker was killed, and the trainer ended with an error."""
    host.count(1, 1)
    word = host.word(by_kill=False)
    assert not word.explains
    assert "rose from 0 to 1" in word.evidence[0]
    assert host.word(TWO).explains  # nothing was used up


def test_a_group_that_only_reclaims_says_nothing(host):
    host.count(0, 5000)
    assert host.word().evidence == ()


def test_a_group_that_went_and_pids_of_other_namespaces_say_nothing(tmp_path):
    host = Host(tmp_path / "host", 2)
    (host.tree.sys / "fs/cgroup/job/memory.events").unlink()
    host.look()
    assert host.word() == host.watch.word("none", None, True)
    host.watch.begin("c" * 32, None)
    host.watch.begin("d" * 32, 4711)  # is gone already
    assert not host.word("c" * 32).explains
    assert not host.word("d" * 32).explains


def test_an_old_kernel_shows_that_the_limit_was_hit_and_explains_nothing(tmp_path):
    host = Host(tmp_path / "host", 1)
    host.count(None, 0)
    for _ in range(2):
        host.look()
    host.count(None, 40)
    word = host.word()
    assert not word.explains
    assert "its memory limit was hit 40 times" in word.evidence[0]

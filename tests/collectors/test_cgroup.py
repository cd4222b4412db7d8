import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.cgroup import CgroupCollector
from pymon.sources.cgroup_paths import CgroupPaths
from pymon.sources.cgroupfs import Cgroupfs
from pymon.sources.process import Processes
from tests.collectors.nodes import watching, whys
from tests.host_tree import PRESSURE, HostTree
from tests.sources.test_cgroupfs import STAT

JOB = "/system.slice/slurmstepd.scope/job_4"
CONTAINER = f"/system.slice/docker-{'ab' * 32}.scope"


@pytest.fixture
def tree(tmp_path):
    tree = HostTree(tmp_path)
    tree.cgroup_v2("/")
    return tree


def collector(tree, *pids):
    return CgroupCollector(
        Processes(tree.roots.proc), Cgroupfs(CgroupPaths(tree.roots)), watching(*pids)
    )


def job(tree, **files):
    files = {
        "cpu_max": "765000 100000",
        "cpu_stat": STAT,
        "cpuset_cpus.effective": "0-7",
        "memory_max": "1000",
        "memory_current": "900",
        "memory_stat": "anon 100\nfile 700\nshmem 50",
        "memory_events": "oom_kill 0",
        "cpu_pressure": PRESSURE,
        "memory_pressure": PRESSURE,
        "io_pressure": PRESSURE,
    } | files
    tree.cgroup_v2(JOB, **files)
    for task in (0, 1):
        leaf = f"{JOB}/step_0/user/task_{task}"
        tree.cgroup_v2(
            leaf, cpu_max="max 100000", memory_max="max", **{"cpuset_cpus.effective": "0-3"}
        )
        tree.process(70 + task, cgroup=f"0::{leaf}\n")


def test_tasks_of_one_job_are_one_group_with_its_limits(tree):
    job(tree)

    (group,) = collector(tree, 70, 71).collect().groups
    assert (group.name, group.quota_cpus, group.cpuset_cpus) == ("job_4", 7.65, 4)
    assert (group.periods_total, group.throttled_periods_total, group.throttled_s_total) == (
        151,
        116,
        6.1,
    )
    assert (group.memory_limit_bytes, group.memory_used_bytes, group.memory_cache_bytes) == (
        1000,
        900,
        700,
    )
    assert (group.cpu_s_total, group.oom_kills_total) == (5.0, 0)
    assert [(one.resource, one.waiting_s_total) for one in group.pressures] == [
        ("cpu", 2.5),
        ("memory", 2.5),
        ("io", 2.5),
    ]


def test_what_is_broken_is_absent_with_its_reason_and_the_rest_stays(tree):
    job(tree, cpu_max="x", memory_stat=b"\xff".decode("latin-1"), cpu_pressure="")

    section = collector(tree, 70).collect()
    (group,) = section.groups
    assert (group.quota_cpus, group.cpuset_cpus, group.cpu_s_total) == (None, 4, 5.0)
    assert [one.resource for one in group.pressures] == ["memory", "io"]
    assert whys(section) == {("quota", "unreadable"): 1, ("pressure", "unreadable"): 1}


def test_processes_in_the_hosts_top_group_are_no_job(tree):
    tree.process(7, cgroup="0::/\n")

    assert collector(tree, 7).collect().groups == ()


def test_a_group_that_vanished_costs_no_other(tree):
    job(tree)
    tree.process(7, cgroup=f"0::{CONTAINER}\n")

    section = collector(tree, 7, 70).collect()
    assert [group.name for group in section.groups] == ["job_4"]
    assert whys(section) == {(name, "not_there"): 1 for name in ("cpu", "memory", "cpuset")}


def test_version_1_with_a_controller_in_the_hosts_top_group(tmp_path):
    tree = HostTree(tmp_path)
    tree.cgroup_v1("cpu", "/", cpu_cfs_quota_us="-1", cpuacct_usage="9")
    tree.cgroup_v1(
        "memory",
        "/slurm/uid_5/job_9",
        memory_limit_in_bytes="100",
        memory_usage_in_bytes="7",
        memory_stat="",
    )
    tree.process(7, cgroup="5:memory:/slurm/uid_5/job_9/step_0/task_0\n4:cpu,cpuacct:/\n")
    tree.cgroup_v1("memory", "/slurm/uid_5/job_9/step_0/task_0")

    (group,) = collector(tree, 7).collect().groups
    assert (group.name, group.memory_limit_bytes, group.memory_used_bytes) == ("job_9", 100, 7)
    assert (group.quota_cpus, group.cpu_s_total) == (None, None)  # the host's own time is no job's


def test_two_groups_of_one_name_make_one_series(tree):
    for number, slice_name in enumerate(("a.slice", "b.slice")):
        tree.cgroup_v2(
            f"/{slice_name}/train.service", cpu_max=f"{number + 1}00000 100000", cpu_stat=STAT
        )
        tree.process(7 + number, cgroup=f"0::/{slice_name}/train.service\n")

    (group,) = collector(tree, 7, 8).collect().groups
    assert (group.name, group.quota_cpus) == ("train.service", 1.0)


def test_hundreds_of_groups_are_bounded(tree):
    for number in range(100):
        tree.cgroup_v2(f"/u{number}.service", cpu_max="max 100000", cpu_stat="")
        tree.process(100 + number, cgroup=f"0::/u{number}.service\n")

    section = collector(tree, *range(100, 200)).collect()
    assert len(section.groups) == 32
    assert whys(section)["group", "too_many"] == 68


def test_nobody_to_look_at(tree):
    with pytest.raises(SourceAbsent, match="no training process"):
        collector(tree).collect()

import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.cgroup_paths import CgroupPaths
from pymon.sources.cgroupfs import Cgroupfs
from pymon.sources.process import Membership
from tests.host_tree import HostTree

V2 = (Membership((), "/system.slice/slurmstepd.scope/job_4/step_0/user/task_1"),)
STAT = "usage_usec 5000000\nnr_periods 151\nnr_throttled 116\nthrottled_usec 6100000"


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


@pytest.fixture
def cgroups(tree):
    return Cgroupfs(CgroupPaths(tree.roots))


def v1(controller, path, others=()):
    return (Membership(("name=systemd",), path), Membership((controller, *others), path))


def test_the_tightest_quota_of_all_groups_above_counts(tree, cgroups):
    job = "/system.slice/slurmstepd.scope/job_4"
    tree.cgroup_v2("/")
    tree.cgroup_v2("/system.slice", cpu_max="800000 100000")
    tree.cgroup_v2(job, cpu_max="765000 100000", cpu_stat=STAT)
    tree.cgroup_v2(V2[0].path, cpu_max="max 100000")

    quota = cgroups.quota(cgroups.group(V2, "cpu"))
    assert (quota.cpus, quota.periods, quota.throttled_periods, quota.throttled_s) == (
        7.65,
        151,
        116,
        6.1,
    )
    assert cgroups.cpu_s(cgroups.group(V2, "cpu").ancestor(job)) == 5.0


def test_no_quota_is_none_and_no_failure(tree, cgroups):
    tree.cgroup_v2(V2[0].path, cpu_max="max 100000")

    assert cgroups.quota(cgroups.group(V2, "cpu")).cpus is None


def test_version_1_counts_in_nanoseconds_and_says_none_with_minus_one(tree, cgroups):
    tree.cgroup_v1(
        "cpu,cpuacct", "/docker", **{"cpu_cfs_quota_us": "-1", "cpu_cfs_period_us": "100000"}
    )
    tree.cgroup_v1(
        "cpu,cpuacct",
        "/docker/a",
        cpu_cfs_quota_us="50000",
        cpu_cfs_period_us="100000",
        cpu_stat="nr_periods 151\nnr_throttled 116\nthrottled_time 6100000000",
        cpuacct_usage="7000000000",
    )
    group = cgroups.group(v1("cpu", "/docker/a", ("cpuacct",)), "cpu")

    quota = cgroups.quota(group)
    assert (group.version, quota.cpus, quota.throttled_s) == (1, 0.5, 6.1)
    account = cgroups.group(v1("cpu", "/docker/a", ("cpuacct",)), "cpuacct")
    assert cgroups.cpu_s(account) == 7.0


def test_memory_of_the_group_that_has_the_limit(tree, cgroups):
    tree.cgroup_v2(
        "/kubepods",
        memory_max="4096",
        memory_current="4000",
        memory_stat="anon 1000\nfile 3000\nshmem 500",
        memory_events="low 0\noom 1\noom_kill 2",
    )
    tree.cgroup_v2("/kubepods/pod", memory_max="max", memory_current="10")

    use = cgroups.memory(cgroups.group((Membership((), "/kubepods/pod"),), "memory"))
    assert (use.limit_bytes, use.used_bytes) == (4096, 4000)
    assert (use.cache_bytes, use.anonymous_bytes, use.shared_bytes, use.oom_kills) == (
        3000,
        1000,
        500,
        2,
    )


def test_version_1_says_no_memory_limit_with_a_huge_one(tree, cgroups):
    tree.cgroup_v1(
        "memory",
        "/a",
        memory_limit_in_bytes=str(0x7FFFFFFFFFFFF000),
        memory_usage_in_bytes="77",
        memory_stat="cache 1\ntotal_cache 30\ntotal_rss 40\ntotal_shmem 5",
        memory_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3",
    )

    use = cgroups.memory(cgroups.group(v1("memory", "/a"), "memory"))
    assert (use.limit_bytes, use.used_bytes, use.cache_bytes, use.oom_kills) == (None, 77, 30, 3)


def test_both_versions_at_once(tree, cgroups):
    tree.cgroup_v1("cpuset", "/a", cpuset_effective_cpus="0-3,8")
    tree.write("sys/fs/cgroup/unified/a/io.pressure", "some total=1000000\nfull total=0\n")
    memberships = (*v1("cpuset", "/a"), Membership((), "/a"))

    assert cgroups.cpuset(cgroups.group(memberships, "cpuset")) == {0, 1, 2, 3, 8}
    assert cgroups.pressure(cgroups.group(memberships, "io"), "io") == (1.0, 0.0)


def test_a_containers_own_mount_of_a_longer_path(tree, cgroups):
    tree.cgroup_v1("cpu", "/", cpu_cfs_quota_us="200000", cpu_cfs_period_us="100000", cpu_stat="")
    point = f"{tree.sys}/fs/cgroup/cpu"
    tree.write("proc/self/mountinfo", f"34 31 0:29 /docker/a {point} ro - cgroup cgroup rw,cpu\n")

    assert cgroups.quota(cgroups.group(v1("cpu", "/docker/a"), "cpu")).cpus == 2.0
    with pytest.raises(SourceAbsent):  # another container's
        cgroups.group(v1("cpu", "/docker/b"), "cpu")


def test_a_path_outside_of_the_namespace_is_absent_for_that_reason(tree, cgroups):
    tree.cgroup_v2("/")

    with pytest.raises(SourceAbsent, match="outside of the daemon's control group namespace"):
        cgroups.group((Membership((), "/../../job_5"),), "cpu")


def test_the_hosts_own_top_group_is_told_apart_from_a_containers(tree, cgroups):
    tree.cgroup_v2("/")
    assert cgroups.is_host(cgroups.group((Membership((), "/"),), "cpu"))

    tree.write("sys/fs/cgroup/cgroup.events", "populated 1\n")
    assert not cgroups.is_host(cgroups.group((Membership((), "/"),), "cpu"))


@pytest.mark.parametrize("text", ["", "max", "x y", "0 100000", "100000 0", "-5 100000"])
def test_a_quota_that_is_none_is_a_failure(tree, cgroups, text):
    tree.cgroup_v2("/a", cpu_max=text)

    with pytest.raises(SourceFailed):
        cgroups.quota(cgroups.group((Membership((), "/a"),), "cpu"))


def test_a_group_that_vanished_is_absent(tree, cgroups):
    tree.cgroup_v2("/a", cpu_max="100000 100000")
    group = cgroups.group((Membership((), "/a"),), "cpu")
    with pytest.raises(SourceAbsent):
        cgroups.quota(group)  # cpu.stat is gone
    with pytest.raises(SourceAbsent):
        cgroups.group((Membership((), "/b"),), "cpu")
    with pytest.raises(SourceAbsent):
        cgroups.group((), "cpu")

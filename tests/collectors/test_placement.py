import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.placement import PlacementCollector
from pymon.model.jobs import JobsSection
from pymon.sources.cgroup_paths import CgroupPaths
from pymon.sources.cgroupfs import Cgroupfs
from pymon.sources.process import Processes
from pymon.sources.sysfs import Sysfs
from tests.clock_double import ClockDouble
from tests.collectors.nodes import held, job_process, known, watching, whys
from tests.host_tree import HostTree


@pytest.fixture
def tree(tmp_path):
    """Eight processors, four cores, two nodes."""
    tree = HostTree(tmp_path)
    tree.topology(8, 4, nodes=["0-1,4-5", "2-3,6-7"], distances=[[10, 21], [21, 10]])
    tree.cgroup_v2("/")
    return tree


def collector(tree, newest):
    roots = tree.roots
    return PlacementCollector(
        Processes(roots.proc), Cgroupfs(CgroupPaths(roots)), Sysfs(roots.sys), newest, ClockDouble()
    )


def one(tree, newest):
    (placement,) = collector(tree, newest).collect().placements
    return placement


def test_affinity_in_processors_cores_and_nodes(tree):
    tree.process(7, cpus="0,4", cgroup="0::/\n")

    section = collector(tree, watching(7)).collect()
    (found,) = section.placements
    assert (section.cores, section.nodes) == (4, 2)
    assert (found.affinity_cpus, found.affinity_cores, found.nodes) == (2, 1, 1)
    assert (found.quota_cpus, found.usable_cpus) == (None, 2.0)


def test_a_quota_below_the_affinity_is_what_can_be_used(tree):
    tree.cgroup_v2("/job", cpu_max="765000 100000", cpu_stat="")
    tree.process(7, cpus="0-7", cgroup="0::/job\n")
    assert one(tree, watching(7)).usable_cpus == 7.65

    tree.process(7, cpus="0-2", cgroup="0::/job\n")
    assert one(tree, watching(7)).usable_cpus == 3.0


def test_processors_that_are_offline_do_not_count(tree):
    tree.process(7, cpus="0-127", cgroup="0::/\n")

    assert one(tree, watching(7)).affinity_cpus == 8


def test_how_far_its_gpus_are(tree):
    for index, node in enumerate((0, 1)):
        tree.pci(f"0000:0{index}:00.0", node=node)
    gpus = (held(0, 7), held(1, 7))
    processes = (job_process(7, gpus=((0, "GPU-0", None), (1, "GPU-1", None))),)
    newest = known(gpus=gpus, jobs=JobsSection(processes, (), (), True))
    tree.process(7, cpus="0,1", cgroup="0::/\n")

    near, far = one(tree, newest).gpu_distances
    assert (near.uuid, near.node, near.nearest, near.farthest) == ("GPU-0", 0, 10, 10)
    assert (far.uuid, far.node, far.nearest, far.farthest) == ("GPU-1", 1, 21, 21)

    tree.process(7, cpus="0-7", cgroup="0::/\n")  # bound to no node
    near, _ = one(tree, newest).gpu_distances
    assert (near.nearest, near.farthest) == (10, 21)


def test_a_gpu_whose_node_the_firmware_does_not_tell_has_no_distance(tree):
    tree.pci("0000:00:00.0", node=-1)
    processes = (job_process(7, gpus=((0, "GPU-0", None),)),)
    newest = known(gpus=(held(0, 7),), jobs=JobsSection(processes, (), (), True))
    tree.process(7, cgroup="0::/\n")

    section = collector(tree, newest).collect()
    assert section.placements[0].gpu_distances == ()
    assert whys(section) == {("gpu_node", "not_there"): 1}


def test_a_machine_without_topology_keeps_the_rest(tmp_path):
    tree = HostTree(tmp_path)
    tree.process(7, cpus="0-3", cgroup="garbage\n")

    section = collector(tree, watching(7, gpus=())).collect()
    (found,) = section.placements
    assert (section.cores, section.nodes) == (None, None)
    assert (found.affinity_cpus, found.affinity_cores, found.nodes) == (4, None, None)
    assert whys(section) == {
        ("cores", "not_there"): 1,
        ("nodes", "not_there"): 1,
        ("quota", "unreadable"): 1,
    }


def test_one_core_that_cannot_be_read_makes_no_smaller_machine(tree):
    tree.write("sys/devices/system/cpu/cpu5/topology/thread_siblings_list", "x")
    tree.process(7, cpus="0-7", cgroup="0::/\n")

    section = collector(tree, watching(7)).collect()
    assert section.cores is None
    assert section.placements[0].affinity_cpus == 8


def test_a_process_that_ended_costs_no_other(tree):
    tree.process(8, cgroup="0::/\n")

    section = collector(tree, watching(7, 8)).collect()
    assert [found.pid for found in section.placements] == [8]
    assert whys(section) == {("affinity", "not_there"): 1}


def test_nobody_to_look_at(tree):
    with pytest.raises(SourceAbsent):
        collector(tree, watching()).collect()

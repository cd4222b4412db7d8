import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.collectors.disk import DiskCollector
from pymon.sources.proc_devices import ProcDevices
from pymon.sources.sysfs import Sysfs
from tests.collectors.nodes import whys
from tests.host_tree import HostTree
from tests.sources.test_proc_devices import DISKS


@pytest.fixture
def tree(tmp_path):
    tree = HostTree(tmp_path)
    tree.write("proc/diskstats", DISKS)
    tree.write("sys/block/sda/device/model", "x")
    return tree


def collector(tree):
    return DiskCollector(ProcDevices(tree.roots.proc), Sysfs(tree.roots.sys))


def test_whole_disks_in_base_units(tree):
    (disk,) = collector(tree).collect().disks

    assert (disk.device, disk.reads_total, disk.read_bytes_total) == ("sda", 10, 2000 * 512)
    assert (disk.read_s_total, disk.write_s_total, disk.busy_s_total) == (0.03, 0.06, 0.07)


def test_small_steps_back_are_held_and_a_reset_passes(tree):
    disks, totals = collector(tree), []
    for reads in (1000, 990, 1001, 3, 4):
        tree.write("proc/diskstats", DISKS.replace("sda 10 ", f"sda {reads} "))
        totals.append(disks.collect().disks[0].reads_total)

    assert totals == [1000, 1000, 1001, 3, 4]


def test_a_disk_that_is_pulled_and_comes_again_begins_anew(tree):
    disks = collector(tree)
    tree.write("sys/block/sdb/device/model", "x")
    tree.write("proc/diskstats", DISKS.replace("sda1 9 ", "sdb 900 "))
    assert disks.collect().disks[1].reads_total == 900
    tree.write("proc/diskstats", DISKS)
    assert len(disks.collect().disks) == 1

    tree.write("proc/diskstats", DISKS.replace("sda1 9 ", "sdb 800 "))
    assert disks.collect().disks[1].reads_total == 800


def test_hundreds_of_disks_are_bounded(tree):
    lines = ""
    for number in range(100):
        tree.write(f"sys/block/sd{number}/device/model", "x")
        lines += f"8 {number} sd{number} 1 2 3 4 5 6 7 8 9 10 11\n"
    tree.write("proc/diskstats", lines)

    section = collector(tree).collect()
    assert len(section.disks) == 32
    assert whys(section) == {("disk", "too_many"): 68}


def test_a_diskless_node_and_an_odd_file(tree):
    tree.write("proc/diskstats", "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n")
    with pytest.raises(SourceAbsent, match="no disk here"):
        collector(tree).collect()

    tree.write("proc/diskstats", "8 0 sda 1 2\n")
    with pytest.raises(SourceFailed):
        collector(tree).collect()

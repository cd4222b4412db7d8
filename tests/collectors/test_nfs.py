import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.nfs import NfsCollector
from pymon.sources.proc_devices import ProcDevices
from tests.collectors.nodes import whys
from tests.host_tree import HostTree
from tests.sources.test_nfs import NFS


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


def collector(tree):
    return NfsCollector(ProcDevices(tree.roots.proc))


def test_waits_by_operation(tree):
    tree.write("proc/self/mountstats", NFS)

    (mount,) = collector(tree).collect().mounts
    assert (mount.export, mount.read_bytes_total, mount.written_bytes_total) == (
        "fs1:/data",
        1000,
        2000,
    )
    read, write = mount.operations
    assert (read.operation, read.requests_total, read.retransmissions_total) == ("read", 1298, 2)
    assert (read.timeouts_total, read.response_s_total, read.request_s_total) == (2, 79.386, 79.407)
    assert write.response_s_total == 0.005


def test_kinds_that_are_seldom_are_one(tree):
    more = "\t        ACCESS: 5 5 0 0 0 0 1000 1000 0\n\t      REMOVE: 6 6 0 0 0 0 2000 18446743919241604546\n"
    tree.write(
        "proc/self/mountstats",
        NFS.replace("device fs1:/data mounted on /mnt", more + "device fs1:/data mounted on /mnt"),
    )

    other = {one.operation: one for one in collector(tree).collect().mounts[0].operations}["other"]
    assert (other.requests_total, other.response_s_total) == (11, 3.0)
    assert other.request_s_total is None  # one of its clocks wrapped: the sum would lie


def test_the_hosts_mounts_before_the_daemons_own(tree):
    tree.write("proc/self/mountstats", NFS)
    tree.write("proc/1/mountstats", NFS.replace("fs1:", "fs2:"))

    assert collector(tree).collect().mounts[0].export == "fs2:/data"


def test_hostile_names_of_exports_are_printable(tree):
    tree.write(
        "proc/self/mountstats",
        NFS.replace("fs1:/data", 'fs:/\x1b"\\' + "x" * 300).encode() + b"\xff",
    )

    (mount,) = collector(tree).collect().mounts
    assert mount.export.isprintable()
    assert len(mount.export) <= 128


def test_a_mount_that_is_odd_is_counted(tree):
    tree.write(
        "proc/self/mountstats", NFS + "device bad:/ mounted on /b with fstype nfs\n\tbytes:\t0\n"
    )

    section = collector(tree).collect()
    assert len(section.mounts) == 1
    assert whys(section) == {("mount", "unreadable"): 1}


def test_hundreds_of_mounts_are_bounded(tree):
    tree.write("proc/self/mountstats", "".join(NFS.replace("fs1:", f"fs{n}:") for n in range(100)))

    section = collector(tree).collect()
    assert len(section.mounts) == 16
    assert whys(section) == {("mount", "too_many"): 84}


def test_none_here(tree):
    with pytest.raises(SourceAbsent):
        collector(tree).collect()
    tree.write("proc/self/mountstats", "device proc mounted on /proc with fstype proc\n")
    with pytest.raises(SourceAbsent, match="no NFS mount here"):
        collector(tree).collect()

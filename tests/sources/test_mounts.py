import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.mounts import Lustre, nfs_mounts
from tests.host_tree import HostTree

NFS = """device proc mounted on /proc with fstype proc
device fs1:/data mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.1,hard,proto=tcp
\tage:\t13968
\tbytes:\t1 2 3 4 1000 2000 7 8
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 832 0 1 0 11 6428 6428 0 12154 0 24 26 5726
\tper-op statistics
\t        NULL: 0 0 0 0 0 0 0 0 0
\t        READ: 1298 1300 2 207680 1210292152 6 79386 79407 0
\t       WRITE: 10 10 0 1 1 18446743919241604546 5 7
device fs1:/data mounted on /mnt/again with fstype nfs4 statvers=1.1
\tbytes:\t1 2 3 4 5 6 7 8
"""
LLITE = """snapshot_time             1523008010.817348638 secs.nsecs
read_bytes                500 samples [bytes] 4096 1048576 209715200
read                      500 samples [usecs] 1 900 2500000 9
open                      7 samples [regs]
"""
OSC = "snapshot_time 1 secs.nsecs\nreq_waittime 1885503 samples [usec] 32 4826358 908745020 67\n"


def test_each_export_once_with_its_waits():
    (mount,), odd = nfs_mounts(NFS)

    read, write = mount.operations[1:]
    assert (mount.export, mount.read_bytes, mount.written_bytes, odd) == (
        "fs1:/data",
        1000,
        2000,
        0,
    )
    assert (read.name, read.requests, read.transmissions, read.timeouts) == ("READ", 1298, 1300, 2)
    assert (read.response_s, read.total_s) == (79.386, 79.407)
    assert write.queue_s is None  # its clock went back and wrapped


def test_a_mount_that_is_odd_costs_no_other():
    odd_one = "device bad:/x mounted on /x with fstype nfs statvers=1.1\n\tbytes:\t0\n"

    mounts, odd = nfs_mounts(odd_one + NFS)
    assert ([mount.export for mount in mounts], odd) == (["fs1:/data"], 1)


@pytest.mark.parametrize("text", ["", "hello", "device foo", "device a mounted on b", "\x00\xff"])
def test_no_nfs(text):
    assert nfs_mounts(text) == ([], 0)


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


@pytest.mark.parametrize("base", ["sys/kernel/debug/lustre", "proc/fs/lustre"])
def test_counters_where_old_and_new_versions_keep_them(tree, base):
    tree.write(f"{base}/llite/my-fs-ffff8800/stats", LLITE)
    tree.write(f"{base}/osc/my-fs-OST0001-osc-ffff8800/stats", OSC)
    lustre = Lustre(tree.roots)

    (llite,), (osc,) = lustre.folders("llite"), lustre.folders("osc")
    client, server = lustre.client(llite, "llite"), lustre.client(osc, "osc")
    assert (client.file_system, server.file_system) == ("my-fs", "my-fs")
    assert [(one.name, one.count, one.total_s) for one in client.operations] == [
        ("read_bytes", 500, None),
        ("read", 500, 2.5),
        ("open", 7, None),
    ]
    assert server.operations[0].total_s == pytest.approx(908.745)


def test_no_lustre_here(tree):
    with pytest.raises(SourceAbsent, match="no Lustre client here"):
        Lustre(tree.roots).folders("llite")


def test_odd_counters_are_a_failure(tree):
    file = tree.write("proc/fs/lustre/llite/a-f/stats", "read x samples [usec] 1 2 3\n")

    with pytest.raises(SourceFailed):
        Lustre(tree.roots).client(str(file.parent), "llite")

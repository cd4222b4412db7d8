import pytest

from pymon.sources.nfs import nfs_mounts

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

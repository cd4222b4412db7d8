import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.lustre import Lustre
from tests.host_tree import HostTree

LLITE = """snapshot_time             1523008010.817348638 secs.nsecs
read_bytes                500 samples [bytes] 4096 1048576 209715200
read                      500 samples [usecs] 1 900 2500000 9
open                      7 samples [regs]
"""
OSC = "snapshot_time 1 secs.nsecs\nreq_waittime 1885503 samples [usec] 32 4826358 908745020 67\n"


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

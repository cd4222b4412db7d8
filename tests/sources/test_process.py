import os
import sys

import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.process import Processes
from tests.host_tree import KERNEL_THREAD, HostTree


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


@pytest.fixture
def processes(tree):
    return Processes(tree.roots.proc)


def test_reads_what_the_kernel_tells_of_a_process(tree, processes):
    tree.process(
        7, "python", state="D", parent=3, start=99, cpu_ticks=(150, 50), cpus="0-3,8", threads=4
    )

    stat, status = processes.stat(7), processes.status(7)
    assert (stat.name, stat.state, stat.parent, stat.start_ticks, stat.threads) == (
        "python",
        "D",
        3,
        99,
        4,
    )
    assert stat.cpu_s == 200 / os.sysconf("SC_CLK_TCK")
    assert status.cpus_allowed == {0, 1, 2, 3, 8}
    assert (processes.descriptors(7), processes.descriptors_max(7)) == (3, 1024)
    assert processes.switches(7) == 10
    assert processes.arguments(7) == ["python", "train.py"]


@pytest.mark.parametrize(
    "name",
    [b"a) R 1 1 1 (b", b"x\ny", b"\xff\xfe", b"tab\tblank ", b") S 0", b"", "naïve—名".encode()],
)
def test_no_name_of_a_process_changes_what_else_is_read(tree, processes, name):
    tree.process(7, name, state="S", parent=3, start=99, uid=1000)

    assert (processes.stat(7).state, processes.stat(7).parent) == ("S", 3)
    assert processes.status(7).uid == 1000


def test_a_name_with_other_line_ends_claims_no_other_user(tree, processes):
    tree.process(7, b"\x0bUid:\t0\t0", uid=1000)
    assert processes.status(7).uid == 1000

    tree.process(7, "\u2028Uid:\t0\t0".encode(), uid=1000)
    assert processes.status(7).uid == 1000


def test_groups_and_mounts(tree, processes):
    tree.process(
        7,
        cgroup="4:cpu,cpuacct:/a:b\n0::/x y\n",
        mountinfo="25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=65536k\n"
        "26 24 0:24 / /a\\040b rw shared:1 - ext4 /dev/x rw\n",
    )

    first, second = processes.cgroup(7)
    assert (first.controllers, first.path) == (("cpu", "cpuacct"), "/a:b")
    assert (second.controllers, second.path) == ((), "/x y")
    shm, blank = processes.mounts(7)
    assert (shm.device, shm.point, shm.kind, shm.options) == (
        "0:23",
        "/dev/shm",
        "tmpfs",
        ("rw", "size=65536k"),
    )
    assert blank.point == "/a b"


def test_children_of_the_main_thread_or_of_all(tree, processes):
    tree.process(7, children=(8, 9))
    tree.write("proc/7/task/70/children", "10 ")

    assert processes.children(7, all_threads=False) == [8, 9]
    assert sorted(processes.children(7, all_threads=True)) == [8, 9, 10]


@pytest.mark.parametrize("file", ["stat", "status", "cgroup", "limits"])
@pytest.mark.parametrize("text", ["", "garbage", "\x00\xff", "1 (x"])
def test_garbage_is_a_failure_and_no_other_error(tree, processes, file, text):
    tree.process(7)
    tree.write(f"proc/7/{file}", text)
    read = {"stat": processes.stat, "status": processes.status, "cgroup": processes.cgroup}

    if (file, text) == ("cgroup", ""):
        assert processes.cgroup(7) == ()
        return
    with pytest.raises(SourceFailed, match=f"/7/{file}"):
        read.get(file, processes.descriptors_max)(7)


def test_one_that_ended_is_absent(processes):
    for read in (processes.stat, processes.status, processes.cgroup, processes.descriptors):
        with pytest.raises(SourceAbsent):
            read(7)


def test_whose_pids_these_are(tree, processes):
    assert not processes.sees_the_host()
    tree.process(2, "kthreadd")  # a container's own process of that name
    assert not processes.sees_the_host()
    tree.process(2, "kthreadd", flags=KERNEL_THREAD)
    assert processes.sees_the_host()

    assert processes.is_own()
    (tree.proc / "self").symlink_to(str(os.getpid() + 1))
    assert not processes.is_own()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the real /proc")
def test_the_real_one_answers():
    real, own = Processes(), os.getpid()

    assert real.stat(own).cpu_s > 0
    assert real.status(own).ns_pids[-1] == own
    assert real.descriptors(own) >= 3
    assert real.descriptors_max(own) > 0
    assert real.cgroup(own)
    assert real.mounts(own)
    assert real.is_own()

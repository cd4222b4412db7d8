import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.shm import ShmCollector
from pymon.sources.files import NotPermitted
from pymon.sources.process import Processes
from pymon.sources.shm import ProcessMounts, SharedMemory
from tests.collectors.nodes import watching, whys
from tests.host_tree import HostTree, device_of
from tests.sources.test_shm import ROOT, line


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


def collector(tree, *pids):
    memory = SharedMemory(tree.folder)
    return ShmCollector(memory, ProcessMounts(Processes(tree.roots.proc)), watching(*pids))


def test_gives_what_statvfs_tells(tmp_path):
    section = ShmCollector(SharedMemory(tmp_path)).collect()

    assert section.total_bytes > section.free_bytes > 0
    assert section.processes == ()


def test_a_process_in_the_hosts_namespace_needs_no_rights(tree):
    tree.process(7, mountinfo=ROOT + line(device_of(tree.folder)))

    section = collector(tree, 7).collect()
    (one,) = section.processes
    assert (one.pid, one.rank, one.job_id, one.shared) == (7, 0, "77", True)
    assert one.total_bytes == section.total_bytes
    assert section.absent == ()


def test_a_container_of_its_own_whose_inside_is_closed_tells_its_size_alone(tree, monkeypatch):
    tree.process(7, mountinfo=ROOT + line("0:99", options=",size=65536k"))

    def refuse(*_):
        raise NotPermitted("/proc/7/root/dev/shm: Permission denied")

    monkeypatch.setattr(ProcessMounts, "usage", refuse)
    section = collector(tree, 7).collect()
    (one,) = section.processes
    assert (one.shared, one.total_bytes) == (False, 64 * 1024 * 1024)
    assert (one.used_bytes, one.free_bytes) == (None, None)
    assert whys(section) == {("shm", "no_permission"): 1}


def test_what_a_user_mounted_there_is_never_asked(tree):
    tree.process(7, mountinfo=ROOT + line("0:99", kind="fuse.x"))
    tree.process(8, mountinfo=ROOT + line(device_of(tree.folder)))

    section = collector(tree, 7, 8).collect()
    assert [one.pid for one in section.processes] == [8]
    assert whys(section) == {("shm", "unreadable"): 1}


@pytest.mark.parametrize("mountinfo", [None, "", "x\n", "1 2 3 4 - \n", b"\xff\xff - a b\n"])
def test_one_that_cannot_be_read_costs_no_other(tree, mountinfo):
    tree.process(7, mountinfo=mountinfo)
    tree.process(8, mountinfo=ROOT + line(device_of(tree.folder)))

    section = collector(tree, 7, 8).collect()
    assert [one.pid for one in section.processes] == [8]
    assert len(section.absent) == 1


def test_mounts_are_read_again_after_a_while(tree):
    tree.process(7, mountinfo=ROOT + line("0:99", kind="fuse.x"))
    shm = collector(tree, 7)
    assert shm.collect().processes == ()

    tree.process(7, mountinfo=ROOT + line(device_of(tree.folder)))
    assert any(shm.collect().processes for _ in range(60))


def test_no_shm_here(tmp_path):
    with pytest.raises(SourceAbsent):
        ShmCollector(SharedMemory(tmp_path / "none")).collect()

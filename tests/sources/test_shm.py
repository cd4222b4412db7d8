import os

import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.process import Processes
from pymon.sources.shm import ProcessMounts, SharedMemory
from tests.host_tree import HostTree, device_of

LINE = "25 24 {device} / {point} rw - {kind} none rw{options}\n"


def line(device, point="/dev/shm", kind="tmpfs", options=""):
    return LINE.format(device=device, point=point, kind=kind, options=options)


def test_parts_sum_to_the_whole(tmp_path):
    usage = SharedMemory(tmp_path).usage()

    assert usage.total_bytes >= usage.used_bytes + usage.free_bytes
    assert usage.free_bytes > 0
    assert usage.device == device_of(tmp_path)


def test_no_such_mount_is_absent(tmp_path):
    with pytest.raises(SourceAbsent, match="does not exist"):
        SharedMemory(tmp_path / "none").usage()


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


@pytest.fixture
def mounts(tree):
    return ProcessMounts(Processes(tree.roots.proc))


def test_finds_what_lies_on_top_and_its_size(tree, mounts):
    told = (
        line("0:5", "/") + line("0:6", "/dev") + line("0:7") + line("0:8", options=",size=65536k")
    )
    tree.process(7, mountinfo=told + line("0:9", "/dev/shmx"))

    mount = mounts.find(7)
    assert (mount.device, mount.kind, mount.size_bytes) == ("0:8", "tmpfs", 64 * 1024 * 1024)


@pytest.mark.parametrize("options", ["", ",size=50%", ",size=k", ",mode=1777"])
def test_a_size_that_is_not_told_is_none(tree, mounts, options):
    tree.process(7, mountinfo=line("0:8", options=options))

    assert mounts.find(7).size_bytes is None


def test_a_users_own_file_system_in_that_place_is_not_asked(tree, mounts):
    tree.process(7, mountinfo=line("0:8", kind="fuse.sshfs"))

    assert not mounts.find(7).answers_at_once


def test_asks_through_the_process(tree, mounts):
    tree.process(7)
    (tree.proc / "7/root/dev/shm").mkdir(parents=True)
    tree.process(7, mountinfo=line(device_of(tree.proc)))

    assert (
        mounts.usage(7, mounts.find(7)).total_bytes == SharedMemory(tree.proc).usage().total_bytes
    )


def test_follows_no_link_out_of_the_process(tree, mounts):
    tree.process(7, mountinfo=line(device_of("/")))
    (tree.proc / "7/root/dev").mkdir(parents=True)
    (tree.proc / "7/root/dev/shm").symlink_to("/")

    with pytest.raises((SourceAbsent, SourceFailed)):
        mounts.usage(7, mounts.find(7))


def test_another_file_system_than_the_one_it_has_is_not_told(tree, mounts):
    tree.process(7, mountinfo=line("0:0"))
    (tree.proc / "7/root/dev/shm").mkdir(parents=True)

    with pytest.raises(SourceAbsent, match="is not what 7 has mounted"):
        mounts.usage(7, mounts.find(7))


def test_the_real_one_answers():
    mounts, own = ProcessMounts(), os.getpid()
    mount = mounts.find(own)

    assert mounts.usage(own, mount).device == mount.device

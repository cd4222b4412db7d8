import os

import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.process import Processes
from pymon.sources.shm import ProcessMounts, SharedMemory
from tests.host_tree import HostTree, device_of

ROOT = "20 1 0:5 / / rw - ext4 /dev/x rw\n"


def line(device, point="/dev/shm", kind="tmpfs", options="", number=25, parent=20):
    """A line of mountinfo, as a rule of a mount right on the one of `/`."""
    return f"{number} {parent} {device} / {point} rw - {kind} none rw{options}\n"


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
    dev, first = line("0:6", "/dev", number=21), line("0:7", number=22, parent=21)
    top = line("0:8", number=23, parent=22, options=",size=65536k")
    others = line("0:9", "/dev/shmx", number=24, parent=21) + line("0:9", number=25, parent=99)
    for told in (ROOT + dev + first + top + others, others + top + first + dev + ROOT):
        tree.process(7, mountinfo=told)

        mount = mounts.find(7)
        assert (mount.device, mount.size_bytes) == ("0:8", 64 * 1024 * 1024)
        assert mount.kinds == ("ext4", "tmpfs", "tmpfs")


def test_a_mount_hides_what_lay_below_it(tree, mounts):
    hidden, dev = line("0:8", number=22), line("0:6", "/dev", kind="devtmpfs", number=21)
    below = (
        ROOT + dev + line("0:8", number=22, parent=21) + line("0:7", "/dev", number=23, parent=21)
    )
    tree.process(7, mountinfo=below)
    assert mounts.find(7).device == "0:7"  # /dev was mounted over

    tree.process(7, mountinfo=ROOT + dev + hidden)
    assert mounts.find(7).device == "0:6"


def test_mounts_that_lie_on_each_other_end(tree, mounts):
    circle = line("0:1", number=21, parent=22) + line("0:2", number=22, parent=21)
    own = "20 20 0:5 / / rw - rootfs rootfs rw\n"
    tree.process(7, mountinfo=own + circle + line("0:3", number=23, parent=23))

    assert mounts.find(7).kinds == ("rootfs",)


@pytest.mark.parametrize("options", ["", ",size=50%", ",size=k", ",mode=1777"])
def test_a_size_that_is_not_told_is_none(tree, mounts, options):
    tree.process(7, mountinfo=ROOT + line("0:8", options=options))

    assert mounts.find(7).size_bytes is None


def test_a_users_own_file_system_in_that_place_is_not_asked(tree, mounts):
    tree.process(7, mountinfo=ROOT + line("0:8", kind="fuse.sshfs"))
    assert not mounts.find(7).answers_at_once

    for kind, told in (("fuse.fuse-overlayfs", False), ("nfs4", False), ("overlay", True)):
        tree.process(7, mountinfo=ROOT.replace("ext4", kind) + line("0:8"))
        assert mounts.find(7).answers_at_once is told


def test_asks_through_the_process(tree, mounts):
    tree.process(7)
    (tree.proc / "7/root/dev/shm").mkdir(parents=True)
    tree.process(7, mountinfo=ROOT + line(device_of(tree.proc)))

    assert (
        mounts.usage(7, mounts.find(7)).total_bytes == SharedMemory(tree.proc).usage().total_bytes
    )


def test_follows_no_link_out_of_the_process(tree, mounts):
    tree.process(7, mountinfo=ROOT + line(device_of("/")))
    (tree.proc / "7/root/dev").mkdir(parents=True)
    (tree.proc / "7/root/dev/shm").symlink_to("/")

    with pytest.raises((SourceAbsent, SourceFailed)):
        mounts.usage(7, mounts.find(7))


def test_another_file_system_than_the_one_it_has_is_not_told(tree, mounts):
    tree.process(7, mountinfo=ROOT + line("0:0"))
    (tree.proc / "7/root/dev/shm").mkdir(parents=True)

    with pytest.raises(SourceAbsent, match="is not what 7 has mounted"):
        mounts.usage(7, mounts.find(7))


def test_the_real_one_answers():
    mounts, own = ProcessMounts(), os.getpid()
    mount = mounts.find(own)

    assert mounts.usage(own, mount).device == mount.device

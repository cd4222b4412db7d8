import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.proc_devices import ProcDevices
from tests.host_tree import HostTree

DISKS = (
    "   8       0 sda 10 0 2000 30 40 0 5000 60 0 70 80 0 0 0 0 0 0\n"
    "   8       1 sda1 9 0 1000 3 4 0 500 6 0 7 8\n"
)
INTERFACES = (
    "Inter-|   Receive                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo\n"
    "    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"
    "  eth0:100 20 3 4 0 0 0 0 900 80 7 6 0 0 0 0\n"
)


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


@pytest.fixture
def devices(tree):
    return ProcDevices(tree.roots.proc)


def test_disks_in_bytes(tree, devices):
    tree.write("proc/diskstats", DISKS)

    disk, partition = devices.disks()
    assert (disk.name, disk.reads, disk.read_bytes, disk.read_ms) == ("sda", 10, 2000 * 512, 30)
    assert (disk.writes, disk.written_bytes, disk.write_ms, disk.busy_ms) == (
        40,
        5000 * 512,
        60,
        70,
    )
    assert partition.name == "sda1"


def test_interfaces_of_the_hosts_namespace_before_the_daemons_own(tree, devices):
    tree.write("proc/net/dev", INTERFACES.replace("eth0", "pod0"))
    assert [one.name for one in devices.interfaces()] == ["lo", "pod0"]

    tree.write("proc/1/net/dev", INTERFACES)
    _, eth0 = devices.interfaces()
    assert (eth0.name, eth0.receive_bytes, eth0.receive_errors, eth0.receive_drops) == (
        "eth0",
        100,
        3,
        4,
    )
    assert (eth0.transmit_bytes, eth0.transmit_errors, eth0.transmit_drops) == (900, 7, 6)


@pytest.mark.parametrize(
    ("name", "read"), [("diskstats", ProcDevices.disks), ("net/dev", ProcDevices.interfaces)]
)
def test_a_file_that_is_missing_or_odd_is_named(tree, devices, name, read):
    with pytest.raises(SourceAbsent, match=name):
        read(devices)

    tree.write(f"proc/{name}", b"a\nb\n\xff\x00 : x\n")
    with pytest.raises(SourceFailed, match=name):
        read(devices)


def test_mounts_of_the_host_before_the_daemons_own(tree, devices):
    with pytest.raises(SourceAbsent):
        devices.mountstats()
    tree.write("proc/self/mountstats", "own")
    assert devices.mountstats() == "own"
    tree.write("proc/1/mountstats", "host")
    assert devices.mountstats() == "host"


def test_the_real_one_answers():
    assert ProcDevices().interfaces()

import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.sysfs import Sysfs
from tests.host_tree import HostTree

ADDRESS = "0000:3b:00.0"


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


@pytest.fixture
def sysfs(tree):
    return Sysfs(tree.roots.sys)


def test_only_what_has_hardware_behind_it(tree, sysfs):
    tree.write("sys/block/nvme0n1/device/model", "x")
    tree.write("sys/block/loop0/size", "0")
    tree.write("sys/class/net/eth0/device/vendor", "x")

    assert [sysfs.is_disk(name) for name in ("nvme0n1", "nvme0n1p1", "loop0")] == [
        True,
        False,
        False,
    ]
    assert [sysfs.is_interface(name) for name in ("eth0", "veth1")] == [True, False]


def test_a_link_that_is_down_has_no_speed(tree, sysfs):
    tree.write("sys/class/net/eth0/speed", "100000\n")
    assert sysfs.interface_speed("eth0") == 12.5e9

    for text in ("-1\n", "\n"):
        tree.write("sys/class/net/eth0/speed", text)
        with pytest.raises(SourceAbsent):
            sysfs.interface_speed("eth0")


def test_a_port_in_bytes_with_the_counters_that_it_has(tree, sysfs):
    tree.infiniband(
        port_rcv_data=100, port_xmit_data=200, symbol_error="N/A (no PMA)", hw_out_of_sequence=4
    )

    assert sysfs.ports() == [("mlx5_0", "1")]
    port = sysfs.port(
        "mlx5_0", "1", ("port_rcv_data", "port_xmit_data", "symbol_error", "out_of_sequence", "x")
    )
    assert (port.state, port.rate_bytes_per_s) == ("active", 50e9)
    assert port.counters == {"port_rcv_data": 400, "port_xmit_data": 800, "out_of_sequence": 4}


def test_kinds_of_pci_devices(tree, sysfs):
    tree.pci(ADDRESS)
    tree.pci("0000:01:00.0", kind="0300", vendor="0x1a03")
    tree.pci("0000:02:00.0", kind="0108", vendor="0x144d")
    tree.pci("0000:03:00.0", kind="0604", vendor="0x8086")

    kinds = [sysfs.pci_kind(address) for address in sysfs.pci_addresses()]
    assert kinds == [None, "nvme", None, "gpu"]


def test_a_link_at_half_width(tree, sysfs):
    tree.pci(ADDRESS, link=(8, 16, "16.0 GT/s PCIe", "32.0 GT/s PCIe"))

    link = sysfs.pci_link(ADDRESS, "gpu")
    assert (link.width, link.width_max, link.generation, link.generation_max) == (8, 16, 4, 5)


def test_a_lost_device_tells_nothing_and_no_nonsense(tree, sysfs):
    tree.pci(ADDRESS, link=(255, 16, "Unknown", "32.0 GT/s PCIe"))

    link = sysfs.pci_link(ADDRESS, "gpu")
    assert (link.width, link.width_max, link.generation, link.generation_max) == (None, 16, None, 5)


def test_a_device_without_a_link_or_a_node(tree, sysfs):
    tree.pci(ADDRESS, link=None, node=-1)

    with pytest.raises(SourceAbsent, match="has no link"):
        sysfs.pci_link(ADDRESS, "gpu")
    with pytest.raises(SourceAbsent, match="the firmware tells none"):
        sysfs.pci_node(ADDRESS)


def test_topology(tree, sysfs):
    tree.topology(8, 4, nodes=["0-1,4-5", "2-3,6-7"], distances=[[10, 21], [21, 10]])

    assert [sysfs.core(cpu) for cpu in sorted(sysfs.cpus_online())] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert sysfs.nodes() == {0: {0, 1, 4, 5}, 1: {2, 3, 6, 7}}
    assert sysfs.distances(1, (0, 1)) == {0: 21, 1: 10}


def test_distances_that_are_too_few_are_a_failure(tree, sysfs):
    tree.topology(2, 2)

    with pytest.raises(SourceFailed, match="1 distances for 2 nodes"):
        sysfs.distances(0, (0, 1))


def test_the_real_one_answers():
    real = Sysfs()

    assert len(real.cpus_online()) >= 1

import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.pci import PciCollector
from pymon.sources.sysfs import Sysfs
from tests.collectors.nodes import whys
from tests.host_tree import HostTree


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


def collector(tree):
    return PciCollector(Sysfs(tree.roots.sys))


def test_a_gpu_at_half_width_beside_a_network_card(tree):
    tree.pci("0000:3b:00.0", link=(8, 16, "16.0 GT/s PCIe", "32.0 GT/s PCIe"))
    tree.pci("0000:5e:00.0", kind="0207", vendor="0x15b3")
    tree.pci("0000:00:1f.0", kind="0601", vendor="0x8086")

    gpu, card = collector(tree).collect().links
    assert (gpu.address, gpu.kind, gpu.width, gpu.width_max) == ("0000:3b:00.0", "gpu", 8, 16)
    assert (gpu.generation, gpu.generation_max) == (4, 5)
    assert (card.kind, card.width) == ("infiniband", 16)


def test_a_device_that_vanishes_or_is_odd_costs_no_other(tree):
    tree.pci("0000:3b:00.0")
    tree.pci("0000:3c:00.0", link=None)
    (tree.sys / "bus/pci/devices/0000:3d:00.0").mkdir()

    section = collector(tree).collect()
    assert [link.address for link in section.links] == ["0000:3b:00.0"]
    assert whys(section) == {("device", "not_there"): 1, ("link", "not_there"): 1}


def test_a_virtual_machine_without_links(tree):
    tree.pci("0000:00:01.0", kind="0200", vendor="0x1af4", link=None)

    with pytest.raises(SourceAbsent, match="no PCI Express link"):
        collector(tree).collect()
    with pytest.raises(SourceAbsent):
        PciCollector(Sysfs(f"{tree.folder}/none")).collect()

import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.network import NetworkCollector
from pymon.sources.proc_devices import ProcDevices
from pymon.sources.sysfs import Sysfs
from tests.collectors.nodes import whys
from tests.host_tree import HostTree
from tests.sources.test_proc_devices import INTERFACES


@pytest.fixture
def tree(tmp_path):
    tree = HostTree(tmp_path)
    tree.write("proc/net/dev", INTERFACES)
    return tree


def collector(tree):
    return NetworkCollector(ProcDevices(tree.roots.proc), Sysfs(tree.roots.sys))


def test_interfaces_with_hardware(tree):
    tree.write("sys/class/net/eth0/device/vendor", "x")
    tree.write("sys/class/net/eth0/speed", "100000\n")

    (eth0,) = collector(tree).collect().interfaces
    assert (eth0.device, eth0.receive_bytes_total, eth0.transmit_bytes_total) == ("eth0", 100, 900)
    assert (eth0.receive_drops_total, eth0.transmit_errors_total) == (4, 7)
    assert eth0.speed_bytes_per_s == 12.5e9


def test_a_link_that_is_down_has_no_speed_and_says_so(tree):
    tree.write("sys/class/net/eth0/device/vendor", "x")
    tree.write("sys/class/net/eth0/speed", "-1\n")

    section = collector(tree).collect()
    assert section.interfaces[0].speed_bytes_per_s is None
    assert whys(section) == {("speed", "not_there"): 1}


def test_a_container_has_none(tree):
    with pytest.raises(SourceAbsent, match="no network hardware"):
        collector(tree).collect()

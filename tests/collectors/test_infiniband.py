import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.infiniband import InfinibandCollector
from pymon.sources.sysfs import Sysfs
from tests.collectors.nodes import whys
from tests.host_tree import HostTree


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


def collector(tree):
    return InfinibandCollector(Sysfs(tree.roots.sys))


def test_traffic_and_errors_that_the_driver_counts(tree):
    tree.infiniband(
        port_rcv_data=10, port_xmit_data=20, port_xmit_wait=5, symbol_error=0, hw_out_of_sequence=3
    )

    (port,) = collector(tree).collect().ports
    assert (port.device, port.port, port.active, port.rate_bytes_per_s) == (
        "mlx5_0",
        "1",
        True,
        50e9,
    )
    assert (port.receive_bytes_total, port.transmit_bytes_total) == (40, 80)
    assert port.transmit_wait_ticks_total == 5
    assert port.errors_total == (("symbol", 0), ("out_of_sequence", 3))


def test_a_driver_without_counters(tree):
    tree.infiniband(state="1: DOWN", rate="unknown")

    (port,) = collector(tree).collect().ports
    assert (port.active, port.rate_bytes_per_s, port.receive_bytes_total) == (False, None, None)
    assert port.errors_total == ()


def test_a_port_that_vanishes_costs_no_other(tree):
    tree.infiniband(port_rcv_data=10)
    tree.infiniband("mlx5_1")
    (tree.sys / "class/infiniband/mlx5_1/ports/1/state").unlink()

    section = collector(tree).collect()
    assert [port.device for port in section.ports] == ["mlx5_0"]
    assert whys(section) == {("port", "not_there"): 1}


def test_none_here(tree):
    with pytest.raises(SourceAbsent):
        collector(tree).collect()
    (tree.sys / "class/infiniband").mkdir(parents=True)
    with pytest.raises(SourceAbsent, match="no InfiniBand port here"):
        collector(tree).collect()

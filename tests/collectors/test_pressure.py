import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.pressure import PressureCollector
from pymon.sources.procfs import Procfs
from tests.collectors.nodes import whys
from tests.host_tree import HostTree


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path).node()


def test_seconds_of_each_resource(tree):
    section = PressureCollector(Procfs(tree.roots.proc)).collect()

    assert [
        (one.resource, one.waiting_s_total, one.stalled_s_total) for one in section.pressures
    ] == [
        ("cpu", 2.5, 1.0),
        ("memory", 2.5, 1.0),
        ("io", 2.5, 1.0),
    ]


def test_garbage_in_one_costs_no_other(tree):
    tree.write("proc/pressure/io", "some avg10=0.00\n")

    section = PressureCollector(Procfs(tree.roots.proc)).collect()
    assert [one.resource for one in section.pressures] == ["cpu", "memory"]
    assert whys(section) == {("io", "unreadable"): 1}


def test_a_kernel_without_psi(tree):
    for resource in ("cpu", "memory", "io"):
        (tree.proc / "pressure" / resource).unlink()

    with pytest.raises(SourceAbsent, match="no pressure stall information"):
        PressureCollector(Procfs(tree.roots.proc)).collect()

import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.lustre import LustreCollector
from pymon.sources import files
from pymon.sources.lustre import Lustre
from tests.collectors.nodes import whys
from tests.host_tree import HostTree
from tests.sources.test_lustre import LLITE, OSC

BASE = "sys/kernel/debug/lustre"


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path)


def collector(tree):
    return LustreCollector(Lustre(tree.roots))


def found(section):
    return {
        (one.component, one.operation): (one.operations_total, one.spent_s_total)
        for one in section.operations
    }


def test_operations_and_the_waits_of_all_servers_of_a_kind(tree):
    tree.write(f"{BASE}/llite/fs-ff88/stats", LLITE)
    for number in (1, 2):
        tree.write(f"{BASE}/osc/fs-OST000{number}-osc-ff88/stats", OSC)

    section = collector(tree).collect()
    assert {one.file_system for one in section.operations} == {"fs"}
    assert found(section) == {
        ("llite", "open"): (7, None),  # counted, not timed
        ("llite", "read"): (500, 2.5),
        ("osc", "request"): (2 * 1885503, pytest.approx(2 * 908.745, abs=0.001)),
    }


def test_one_server_that_cannot_be_read_makes_no_sum_fall(tree):
    tree.write(f"{BASE}/llite/fs-ff88/stats", LLITE)
    tree.write(f"{BASE}/osc/fs-OST0001-osc-ff88/stats", OSC)
    (tree.folder / BASE / "osc/fs-OST0002-osc-ff88").mkdir()

    section = collector(tree).collect()
    assert {component for component, _ in found(section)} == {"llite"}
    assert whys(section)["stats", "not_there"] == 1


def test_counters_that_are_roots_alone_are_absent_for_that_reason(tree, monkeypatch):
    tree.write("sys/fs/lustre/version", "2.15")
    names = files.names

    def closed(path):
        if "debug" in path:
            raise files.NotPermitted(f"{path}: Permission denied")
        return names(path)

    monkeypatch.setattr(files, "names", closed)
    with pytest.raises(SourceAbsent, match="Permission denied"):
        collector(tree).collect()


def test_none_here(tree):
    with pytest.raises(SourceAbsent, match="no Lustre client here"):
        collector(tree).collect()

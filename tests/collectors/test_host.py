import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.host import HostCollector
from pymon.sources.procfs import Procfs
from tests.collectors.nodes import whys
from tests.host_tree import HostTree

MEMINFO = "MemTotal: 8 kB\nMemAvailable: 2 kB\n"


def write(folder, busy, idle, iowait=0):
    (folder / "stat").write_text(f"cpu {busy} 0 0 {idle} {iowait} 0 0 0\ncpu0 0 0 0 0 0 0 0 0\n")
    (folder / "meminfo").write_text(MEMINFO)


def test_busy_is_what_happened_since_the_run_before(tmp_path):
    host = HostCollector(Procfs(tmp_path))
    write(tmp_path, 100, 100)
    assert host.collect().cpu_busy_ratio is None

    write(tmp_path, 130, 110)
    assert host.collect().cpu_busy_ratio == 0.75
    assert host.collect().cpu_busy_ratio is None  # nothing happened in between

    write(tmp_path, 120, 200)  # counters that went back tell nothing
    assert host.collect().cpu_busy_ratio is None


def test_a_counter_that_goes_back_is_held_until_it_grows_again(tmp_path):
    host = HostCollector(Procfs(tmp_path))
    iowait = []
    for ticks in (1000, 999, 1001):
        write(tmp_path, 100, 100, iowait=ticks)
        iowait.append(dict(host.collect().cpu_s_total)["iowait"])

    assert iowait == [10.0, 10.0, 10.01]


def test_a_host_without_vmstat_keeps_the_rest(tmp_path):
    tree = HostTree(tmp_path).node()
    (tree.proc / "vmstat").unlink()

    section = HostCollector(Procfs(tree.roots.proc)).collect()
    assert (section.oom_kills_total, section.swap_in_bytes_total) == (None, None)
    assert section.memory_cached_bytes == 300 * 1024
    assert whys(section) == {("paging", "not_there"): 1}


def test_no_proc_at_all(tmp_path):
    with pytest.raises(SourceAbsent):
        HostCollector(Procfs(tmp_path / "none")).collect()

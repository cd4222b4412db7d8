from pymon.collectors.host import HostCollector
from pymon.sources.procfs import Procfs

MEMINFO = "MemTotal: 8 kB\nMemAvailable: 2 kB\n"


def write(folder, busy, idle):
    (folder / "stat").write_text(f"cpu {busy} 0 0 {idle} 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\n")
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

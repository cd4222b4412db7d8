import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.procfs import Procfs, self_usage
from tests.host_tree import HostTree


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path).node()


@pytest.fixture
def procfs(tree):
    return Procfs(tree.roots.proc)


def test_reads_ticks_by_mode_and_who_waits(procfs):
    times = procfs.cpu_times()

    assert (times.busy_ticks, times.total_ticks, times.cpu_count) == (160, 1000, 2)
    assert times.mode_ticks == (100, 10, 50, 800, 40, 0, 0, 0)
    assert times.blocked == 3


def test_reads_memory_page_cache_and_swap(procfs):
    memory, paging = procfs.memory(), procfs.paging()

    assert (memory.total_bytes, memory.available_bytes) == (1000 * 1024, 400 * 1024)
    assert (memory.cached_bytes, memory.swap_free_bytes) == (300 * 1024, 40 * 1024)
    assert (paging.swapped_in_pages, paging.major_faults, paging.oom_kills) == (5, 70, 1)


def test_what_an_old_kernel_does_not_list_is_none(tree, procfs):
    tree.write("proc/meminfo", "MemTotal: 8 kB\nMemAvailable: 2 kB\n")
    tree.write("proc/vmstat", "nr_free_pages 1\n")

    assert procfs.memory().cached_bytes is None
    assert procfs.paging().oom_kills is None


def test_pressure_in_seconds(tree, procfs):
    assert procfs.pressure("io") == (2.5, 1.0)

    tree.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")
    assert procfs.pressure("cpu") == (7e-6, None)  # before Linux 5.13 it has one line


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("stat", Procfs.cpu_times),
        ("meminfo", Procfs.memory),
        ("pressure/cpu", lambda procfs: procfs.pressure("cpu")),
    ],
)
def test_a_file_that_is_missing_or_odd_is_named(tree, procfs, name, read):
    (tree.proc / name).unlink(missing_ok=True)
    with pytest.raises(SourceAbsent, match=name):
        read(procfs)

    tree.write(f"proc/{name}", b"a\nb\n\xff\x00 : x\n")
    with pytest.raises(SourceFailed, match=name):
        read(procfs)


def test_the_real_one_answers():
    assert Procfs().cpu_times().cpu_count >= 1
    assert Procfs().memory().total_bytes > 0
    assert self_usage().cpu_s > 0

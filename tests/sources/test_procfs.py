import pytest

from pymon.base.errors import SourceFailed
from pymon.sources.procfs import Procfs, self_usage

STAT = "cpu  10 1 5 80 4 0 0 0 0 0\ncpu0 5 0 3 40 2 0 0 0 0 0\ncpu1 5 1 2 40 2 0 0 0 0 0\nintr 1\n"
MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "stat").write_text(STAT)
    (tmp_path / "meminfo").write_text(MEMINFO)
    return tmp_path


def test_reads_ticks_and_memory(proc):
    times, memory = Procfs(proc).cpu_times(), Procfs(proc).memory()

    assert (times.busy_ticks, times.total_ticks, times.cpu_count) == (16, 100, 2)
    assert (memory.total_bytes, memory.available_bytes) == (1000 * 1024, 400 * 1024)


@pytest.mark.parametrize("name", ["stat", "meminfo"])
@pytest.mark.parametrize("text", ["", "cpu x\n", None])
def test_a_file_that_is_missing_or_odd_is_a_failure_that_names_it(proc, name, text):
    (proc / name).unlink() if text is None else (proc / name).write_text(text)
    read = Procfs(proc).cpu_times if name == "stat" else Procfs(proc).memory

    with pytest.raises(SourceFailed, match=name):
        read()


def test_the_real_one_answers():
    assert Procfs().cpu_times().cpu_count >= 1
    assert Procfs().memory().total_bytes > 0
    assert self_usage().cpu_s > 0

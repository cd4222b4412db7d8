from pymon.collectors.shm import ShmCollector
from pymon.sources.shm import SharedMemory


def test_gives_what_statvfs_tells(tmp_path):
    section = ShmCollector(SharedMemory(tmp_path)).collect()

    assert section.total_bytes > section.free_bytes > 0

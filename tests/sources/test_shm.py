import pytest

from pymon.base.errors import SourceAbsent
from pymon.sources.shm import SharedMemory


def test_parts_sum_to_the_whole(tmp_path):
    usage = SharedMemory(tmp_path).usage()

    assert usage.total_bytes >= usage.used_bytes + usage.free_bytes
    assert usage.free_bytes > 0


def test_no_such_mount_is_absent(tmp_path):
    with pytest.raises(SourceAbsent, match="does not exist"):
        SharedMemory(tmp_path / "none").usage()

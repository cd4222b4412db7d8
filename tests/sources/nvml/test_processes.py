import random
import struct

import pytest

from pymon.sources.nvml.processes import parse, stride_of

ROW = struct.Struct(
    "<IIQIIQ"
)  # pid, padding, bytes, GPU instance, compute instance, protected bytes
NONE = 2**32 - 1


def written(rows, stride, capacity=16):
    """Memory of that many rows of 32 bytes, marked, into which a driver wrote its own rows."""
    memory = bytearray(b"\xa5" * (32 * max(capacity, len(rows))))
    for place, (pid, used, instance) in enumerate(rows):
        memory[place * stride : (place + 1) * stride] = ROW.pack(pid, 0, used, instance, NONE, 0)[
            :stride
        ]
    return bytes(memory)


@pytest.mark.parametrize("stride", [16, 24, 32])
@pytest.mark.parametrize("count", [1, 2, 3, 15, 500])
def test_rows_of_every_generation_are_read_as_they_were_written(stride, count):
    dice = random.Random(stride * 1000 + count)
    for _ in range(50):
        rows = [
            (dice.randrange(1, 2**22), dice.choice([0, 1, 2**64 - 1, dice.randrange(2**40)]),
             dice.choice([NONE, 0, 13]))
            for _ in range(count)
        ]  # fmt: skip
        found = parse(written(rows, stride), count)

        assert [row[:2] for row in found] == [row[:2] for row in rows]
        if stride > 16:
            assert found == rows


def test_no_rows_have_no_stride_to_go_wrong():
    assert parse(written([], 24), 0) == []
    assert stride_of(b"\xa5" * 64, 1) == 16

import io

import pytest
from rich.console import Console

from pymon.model.memory import AllocatorUse, HostUse, ProcessMemory
from pymon.model.progress import RunState
from pymon.reports import box_terminal
from tests.reports.boxes import box


def shown(one, steps=10):
    text = io.StringIO()
    Console(file=text, width=200).print(box_terminal.render(one, steps))
    return text.getvalue()


def test_it_says_who_died_of_what_and_at_what():
    text = shown(box())
    assert "pid 4711, rank 3 of 8, job 77, train.py" in text
    assert "ended   killed by SIGKILL, seen 2001-09-09 01:46:40 UTC" in text
    assert "kernel log: Out of memory: Killed process 4711 (python)" in text
    assert "in `backward` for 1.5 s when the end was seen" in text
    assert "event   checkpoint_save of 250 ms in step 3, over 1 s before" in text
    assert "3; median 100 ms of the last 3, the last one 2 s before" in text


def test_only_the_last_steps_are_listed_and_captured_ones_are_marked():
    rows = [line for line in shown(box(), steps=2).splitlines() if line.strip()[:1].isdigit()]
    assert [row.split()[0] for row in rows] == ["2", "3"]
    assert "captured" in rows[0]
    assert rows[1].split()[1:3] == ["2", "s"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": ()}, "not recorded"),
        ({"steps": (), "steps_total": 0}, "no step is recorded"),
        ({"counting": None, "steps_total": None}, "writing its totals"),
        ({"doing": None}, "not told"),
        ({"state": RunState.CHECKPOINTING, "state_s": 40.0}, "checkpointing for 40 s"),
        ({"events": (), "last_event_s": None}, "event   none is recorded"),
        ({"ended": "unknown", "evidence": ()}, "ended   unknown"),
    ],
)
def test_what_is_not_known_is_said_so(changes, said):
    assert said in shown(box(**changes))


GIB = 1 << 30


def test_the_memory_it_had_last_is_told():
    allocator = AllocatorUse(
        1,
        "GPU-1",
        3,
        0.4,
        allocated_bytes=71 * GIB,
        reserved_bytes=78 * GIB,
        inactive_split_bytes=5 * GIB,
        allocated_peak_bytes=77 * GIB,
        alloc_retries_total=1027,
        ooms_total=1,
        device_memory_bytes=80 * GIB,
    )
    host = HostUse(rss_bytes=12 * GIB, uss_bytes=9 * GIB, workers=4, workers_shm_bytes=GIB)
    text = shown(box(memory=ProcessMemory((allocator,), host)))
    assert (
        "memory  cuda:1  71.0 GiB allocated, 78.0 GiB reserved, 5.0 GiB in free pieces, "
        "77.0 GiB at the peak, 80.0 GiB on the device, 1,027 retries, 1 out of memory; "
        "400 ms before the end was seen" in text
    )
    assert "host    12.0 GiB resident, 9.0 GiB its own alone; 4 workers: 1.0 GiB more in" in text


def test_memory_that_nobody_read_has_no_line():
    for memory in (None, ProcessMemory((), HostUse())):
        text = shown(box(memory=memory))
        assert "memory  " not in text
        assert "host  " not in text

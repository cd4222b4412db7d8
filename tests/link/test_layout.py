"""The Python twin of the layout has the numbers of csrc/core/layout.h."""

import subprocess

import pytest

from pymon.link import layout
from tests.native.build import built

HEADER_FIELD_ENDS = 248  # `reserved` begins there in layout.h


@pytest.mark.timeout(600)
def test_every_number_is_that_of_cpp():
    program = built("address,undefined", "page_peer") / "page_peer"
    lines = subprocess.run([program, "layout"], capture_output=True, text=True, check=True).stdout
    theirs = {name: int(value) for name, value in map(str.split, lines.splitlines())}
    ours = {name: value for name, value in vars(layout).items() if isinstance(value, int)}
    del ours["MAX_PAGE_BYTES"]  # a bound of the reader, no part of the layout
    assert ours == theirs


def test_structs_fill_their_places():
    assert layout.HEADER.size == HEADER_FIELD_ENDS
    assert layout.TRAIN_SCALARS.size <= layout.TRAIN_PHASES_BYTE
    assert layout.TRAIN_PHASES_BYTE + layout.TRAIN_PHASES.size == layout.TRAIN_STEP_HISTOGRAM_BYTE
    histogram_bytes = layout.TRAIN_HISTOGRAM.size
    assert layout.TRAIN_STEP_HISTOGRAM_BYTE + histogram_bytes == layout.TRAIN_PHASE_HISTOGRAMS_BYTE
    assert (
        layout.TRAIN_PHASE_HISTOGRAMS_BYTE + layout.STEP_PHASES * histogram_bytes
        == layout.TRAIN_NAMES_BYTE
    )
    assert layout.RING_ENTRY.size == layout.RING_ENTRY_BYTES
    assert layout.GPU_SCALARS.size <= layout.GPU_PHASES_BYTE
    assert layout.GPU_HISTOGRAM_BYTE + histogram_bytes == layout.GPU_REASON_BYTE
    assert layout.GPU_REASON_BYTE + layout.REASON_BYTES <= layout.GPU_BODY_BYTES
    assert layout.GPU_RING_ENTRY.size == layout.GPU_RING_ENTRY_BYTES
    assert layout.EVENTS_SCALARS.size <= layout.EVENT_SUMS_BYTE
    sums_bytes = layout.EVENT_KINDS * layout.EVENT_SUMS.size
    assert layout.EVENT_SUMS_BYTE + sums_bytes == layout.EVENT_UNSEEN_BYTE
    assert layout.EVENT_ENTRY.size == layout.EVENT_ENTRY_BYTES
    assert layout.CUPTI_SCALARS.size <= layout.CUPTI_REASON_BYTE
    assert layout.CUPTI_REASON_BYTE + layout.REASON_BYTES <= layout.CUPTI_GAPS_BYTE
    assert layout.CUPTI_GAPS_BYTE + layout.WORK_HISTOGRAM.size <= layout.CUPTI_HEAD_BYTES
    assert layout.RUN_SCALARS.size == layout.RUN_WAIT_HISTOGRAM_BYTE
    assert layout.RUN_WAIT_HISTOGRAM_BYTE + layout.RUN_WAIT.size <= layout.RUN_BODY_BYTES
    assert layout.WORK_SUMS.size == layout.WORK_SUMS_BYTES
    assert layout.MEMORY_HOST_BYTE + layout.MEMORY_HOST.size <= layout.MEMORY_ALLOCATOR_BYTE
    states_bytes = layout.ALLOCATOR_DEVICES * layout.ALLOCATOR_STATE.size
    assert layout.MEMORY_ALLOCATOR_BYTE + states_bytes == layout.MEMORY_BODY_BYTES

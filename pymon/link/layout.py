"""The page's bytes, as csrc/core/layout.h has them; tests/link holds the two against each other."""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"PYMONPG\0"
MAJOR: Final = 1
MINOR: Final = 6

PHASE_SLOTS: Final = 16
STEP_PHASES: Final = 5  # slots 0..4 part the step: PHASES in pymon/model/training.py
EVALUATION_SLOT: Final = 5  # these two lie between steps
CHECKPOINT_SLOT: Final = 6
USER_PHASES: Final = 8
USER_PHASE_FIRST: Final = 8
USER_PHASE_NAME_BYTES: Final = 32
HISTOGRAM_BUCKETS: Final = 32
HISTOGRAM_FIRST_BOUND_NS: Final = 1 << 10  # bucket i: below 2^(10+i) ns; the last one: all others
RING_ENTRIES: Final = 4096

COUNT_LAST: Final = 3  # enum Counting: none, optimizer, explicit, backward

STEP_PROFILED: Final = 1
STEP_ESTIMATED: Final = 2
STEP_UNPHASED: Final = 4

SHED_KERNELS: Final = 1  # enum Shed
SHED_PHASES: Final = 2
SHED_RECORDS: Final = 3
SHED_ALL: Final = 4  # pymon disarm
DOING_SHIFT: Final = 56

HEADER_BYTES: Final = 256
TRAIN_OFFSET: Final = 256
TRAIN_BODY_IN_SECTION: Final = 64  # behind the seqlock word, which has its cache line
TRAIN_WORDS: Final = 264
TRAIN_BODY_BYTES: Final = 8 * TRAIN_WORDS
TRAIN_SECTION_BYTES: Final = TRAIN_BODY_IN_SECTION + TRAIN_BODY_BYTES
RING_OFFSET: Final = 4096
RING_ENTRY_BYTES: Final = 192

# The GPU sections, behind the ring; their bodies too lie TRAIN_BODY_IN_SECTION behind the seqlock word.
LAYER_STATES: Final = 5  # enum LayerState
REASON_BYTES: Final = 160
GPU_OFFSET: Final = RING_OFFSET + RING_ENTRY_BYTES * RING_ENTRIES
GPU_BODY_BYTES: Final = 8 * 88
GPU_PHASES_BYTE: Final = 8 * 16
GPU_HISTOGRAM_BYTE: Final = 8 * 24
GPU_REASON_BYTE: Final = 8 * 56
CUPTI_OFFSET: Final = GPU_OFFSET + 4096
WORK_CLASSES: Final = 32
WORK_BUCKETS: Final = 24  # as HISTOGRAM_BUCKETS, fewer
WORK_SUMS_BYTES: Final = 8 * (4 + WORK_BUCKETS)
CUPTI_REASON_BYTE: Final = 8 * 44
CUPTI_GAPS_BYTE: Final = 8 * 64
CUPTI_HEAD_BYTES: Final = 8 * 96
CUPTI_BODY_BYTES: Final = CUPTI_HEAD_BYTES + WORK_CLASSES * WORK_SUMS_BYTES
GPU_RING_OFFSET: Final = CUPTI_OFFSET + 12288
GPU_RING_ENTRIES: Final = 1024
GPU_RING_ENTRY_BYTES: Final = 64

# Events that explain a slow step (csrc/core/layout_events.h): the body as above, the ring at a fixed place behind it.
EVENTS_OFFSET: Final = GPU_RING_OFFSET + GPU_RING_ENTRY_BYTES * GPU_RING_ENTRIES
EVENT_KINDS: Final = 16
EVENT_SUMS_BYTE: Final = 8 * 8
EVENT_UNSEEN_BYTE: Final = 8 * 136
EVENTS_BODY_BYTES: Final = 8 * 160
EVENT_RING_BYTE: Final = 4096
EVENT_RING_ENTRIES: Final = 256
EVENT_ENTRY_BYTES: Final = 64
EVENTS_BYTES: Final = EVENT_RING_BYTE + EVENT_ENTRY_BYTES * EVENT_RING_ENTRIES

RUN_OFFSET: Final = EVENTS_OFFSET + EVENTS_BYTES
RUN_WORDS: Final = 80
RUN_BODY_BYTES: Final = 8 * RUN_WORDS
RUN_STATES: Final = 4  # enum RunState
RUN_WAIT_HISTOGRAM_BYTE: Final = 8 * 32

COLLECTIVES_OFFSET: Final = RUN_OFFSET + 4096
COLLECTIVE_GROUPS: Final = 16
GROUP_NAME_BYTES: Final = 32
COLLECTIVES_BODY_BYTES: Final = 8 * 136

MEMORY_OFFSET: Final = COLLECTIVES_OFFSET + 4096
ALLOCATOR_VALUES: Final = 15  # their names: pymon/link/memory_section.py
ALLOCATOR_DEVICES: Final = 16
DEVICE_UUID_BYTES: Final = 40
HOST_VALUES: Final = 14
MEMORY_HOST_BYTE: Final = 8 * 1
MEMORY_ALLOCATOR_BYTE: Final = 8 * 32
MEMORY_BODY_BYTES: Final = 8 * 416

RECORDER_OFFSET: Final = MEMORY_OFFSET + 4096  # csrc/core/layout_recorder.h
RECORDED_GROUPS: Final = 16
RECORDED_OPS: Final = 40
RECORDER_REASON_BYTE: Final = 8 * 16
RECORDER_GROUPS_BYTE: Final = 8 * 36
RECORDER_OPS_BYTE: Final = 8 * 228
RECORDER_ARRIVALS_BYTE: Final = 8 * 628
RECORDER_ARRIVALS: Final = 96
RECORDER_BODY_BYTES: Final = 8 * 916

PAGE_BYTES: Final = RECORDER_OFFSET + 8192

# Bounds of a reader against a hostile writer (csrc/core/page_reader.h).
MAX_PAGE_BYTES: Final = 16 << 20

# magic, major, minor, page_bytes, pid, start_ticks, created mono and real, attach_id, train, gpu, cupti, ring,
# gpu ring, run, events, collectives, memory, recorder
HEADER: Final = struct.Struct("<8s2I5Q16s22Q")
TRAIN_SCALARS: Final = struct.Struct("<24Q")
TRAIN_PHASES: Final = struct.Struct(f"<{PHASE_SLOTS}Q")
TRAIN_HISTOGRAM: Final = struct.Struct(f"<{HISTOGRAM_BUCKETS}Q")
RING_ENTRY: Final = struct.Struct(f"<8Q{PHASE_SLOTS}Q")

TRAIN_PHASES_BYTE: Final = 8 * 24
TRAIN_STEP_HISTOGRAM_BYTE: Final = 8 * 40
TRAIN_PHASE_HISTOGRAMS_BYTE: Final = 8 * 72
TRAIN_NAMES_BYTE: Final = 8 * 232

GPU_SCALARS: Final = struct.Struct("<15Q")
GPU_RING_ENTRY: Final = struct.Struct("<7Q8x")
CUPTI_SCALARS: Final = struct.Struct("<38Q")
COLLECTIVES_SCALARS: Final = struct.Struct("<8Q")
GROUP_STATE: Final = struct.Struct(f"<{GROUP_NAME_BYTES}s4Q")
MEMORY_HOST: Final = struct.Struct(f"<{2 * HOST_VALUES}Q")  # when each was read, then the values
ALLOCATOR_STATE: Final = struct.Struct(f"<{DEVICE_UUID_BYTES}s{4 + ALLOCATOR_VALUES}Q")
RECORDER_SCALARS: Final = struct.Struct("<10Q")
RECORDED_GROUP: Final = struct.Struct(f"<{GROUP_NAME_BYTES}s16s6Q")
RECORDED_OP: Final = struct.Struct("<40s5Q")
ARRIVAL: Final = struct.Struct("<3Q")
EVENTS_SCALARS: Final = struct.Struct("<4Q")
EVENT_SUMS: Final = struct.Struct("<6Q16x")
EVENT_ENTRY: Final = struct.Struct("<6Q16x")
WORK_SUMS: Final = struct.Struct(f"<{4 + WORK_BUCKETS}Q")
WORK_HISTOGRAM: Final = struct.Struct(f"<{WORK_BUCKETS}Q")
RUN_SCALARS: Final = struct.Struct("<32Q")
RUN_WAIT: Final = struct.Struct(f"<{HISTOGRAM_BUCKETS + 1}Q")  # the histogram, then its sum

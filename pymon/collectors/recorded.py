"""The page's section of the Flight Recorder -> the model, bounded to what a metric can hold."""

from __future__ import annotations

from pymon.collectors.gpu_work import MAX_COUNT
from pymon.link.recorder_section import RecordedGroup, RecorderSample
from pymon.model.collectives import Collectives
from pymon.model.recorded import CollectiveOp, GroupProgress, RecordedCollectives


def recorded(
    sample: RecorderSample | None, collectives: Collectives | None, now_real_ns: int
) -> RecordedCollectives | None:
    """None before the first look, and where nothing said why there is none."""
    if sample is None or not (sample.reads_total or sample.reason):
        return None
    # By sequence number a group tells at each tick whether it went on since the recorder was read.
    numbers = {
        group.name: group.sequence_total for group in (collectives.groups if collectives else ())
    }
    return RecordedCollectives(
        groups=tuple(
            _progress(group, numbers.get(group.name), now_real_ns) for group in sample.groups
        ),
        ops=tuple(
            CollectiveOp(
                group=sample.groups[op.group].name,
                backend=sample.groups[op.group].backend,
                name=op.name,
                count_total=min(op.count_total, MAX_COUNT),
                bytes_total=min(op.bytes_total, MAX_COUNT),
                timed_total=min(op.timed_total, MAX_COUNT),
                time_s_total=op.time_ns_total / 1e9,
            )
            for op in sample.ops
        ),
        unread_total=min(sample.missed_total + sample.dropped_total, MAX_COUNT),
        read_cpu_s_total=sample.read_cpu_ns_total / 1e9,
        reason=sample.reason,
    )


def _progress(group: RecordedGroup, sequence: int | None, now_real_ns: int) -> GroupProgress:
    still = group.open_op is not None and sequence in (None, group.enqueued)
    return GroupProgress(
        group=group.name,
        backend=group.backend,
        enqueued=min(group.enqueued, MAX_COUNT),
        started=None if group.started is None else min(group.started, MAX_COUNT),
        completed=min(group.completed, MAX_COUNT),
        open_op=group.open_op if still else None,
        open_bytes=min(group.open_bytes, MAX_COUNT) if still else 0,
        open_s=max(0, now_real_ns - group.open_real_ns) / 1e9 if still else None,
    )

"""The page's section of torch's Flight Recorder, with names."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.link import layout


@dataclass(frozen=True, slots=True)
class OpSample:
    """One operation of one group; sums over the records that were read."""

    group: int  # its place in `groups`
    name: str
    count_total: int
    bytes_total: int
    timed_total: int  # of these, with a duration
    time_ns_total: int


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """How far this rank is in one group, by the group's own numbers, at the newest look."""

    name: str
    backend: str
    enqueued: int
    started: int | None  # None: the backend does not tell
    completed: int
    open_op: str | None  # of the one after `completed`, where it was begun
    open_bytes: int
    open_real_ns: int


@dataclass(frozen=True, slots=True)
class RecorderSample:
    """One whole state."""

    reads_total: int
    read_cpu_ns_total: int
    last_read_mono_ns: int
    records_total: int
    missed_total: int  # overwritten before they were read
    dropped_total: int  # no room in the tables
    unsized_total: int
    reason: str  # what is not read and why
    groups: tuple[RecordedGroup, ...]
    ops: tuple[OpSample, ...]
    arrivals: tuple[tuple[int, int, int], ...]  # group's place, sequence, when begun (real)


def recorder_sample(body: bytes) -> RecorderSample:
    """`body` is a RecorderBody of csrc/core/layout_recorder.h; places that lie in no table are left away."""
    words = layout.RECORDER_SCALARS.unpack_from(body)
    groups, ops, arrivals = words[7:10]
    held = min(groups, layout.RECORDED_GROUPS)
    operations = []
    for slot in range(min(ops, layout.RECORDED_OPS)):
        at = layout.RECORDER_OPS_BYTE + slot * layout.RECORDED_OP.size
        name, group, *sums = layout.RECORDED_OP.unpack_from(body, at)
        operations.append(OpSample(group, _text(name), *sums))
    begun = [
        layout.ARRIVAL.unpack_from(body, layout.RECORDER_ARRIVALS_BYTE + slot * layout.ARRIVAL.size)
        for slot in range(min(arrivals, layout.RECORDER_ARRIVALS))
    ]
    reason_end = layout.RECORDER_GROUPS_BYTE
    return RecorderSample(
        reads_total=words[0],
        read_cpu_ns_total=words[1],
        last_read_mono_ns=words[2],
        records_total=words[3],
        missed_total=words[4],
        dropped_total=words[5],
        unsized_total=words[6],
        reason=_text(body[layout.RECORDER_REASON_BYTE : reason_end]),
        groups=tuple(_group(body, slot, operations) for slot in range(held)),
        ops=tuple(op for op in operations if op.group < held),
        arrivals=tuple((group, number, at) for group, number, at in begun if group < held),
    )


def _group(body: bytes, slot: int, ops: list[OpSample]) -> RecordedGroup:
    at = layout.RECORDER_GROUPS_BYTE + slot * layout.RECORDED_GROUP.size
    name, backend, enqueued, started, completed, op, size, since_ns = (
        layout.RECORDED_GROUP.unpack_from(body, at)
    )
    named = ops[op - 1].name if 0 < op <= len(ops) else None
    open_op = (named or "?") if since_ns else None
    return RecordedGroup(
        _text(name), _text(backend), enqueued, started or None, completed, open_op, size, since_ns
    )


def _text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)

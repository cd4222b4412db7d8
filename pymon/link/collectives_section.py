"""The page's section of collectives, with names."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.link import layout


@dataclass(frozen=True, slots=True)
class GroupSample:
    """One process group."""

    name: str
    size: int
    rank: int
    sequence: int  # collectives begun, DDP's own included
    changed_mono_ns: int  # when it was first seen at this number


@dataclass(frozen=True, slots=True)
class CollectivesSample:
    """One whole state; DDP's figures are of the iterations that it timed and that were read."""

    groups_total: int  # `groups` holds the first layout.COLLECTIVE_GROUPS
    ddp_samples_total: int
    ddp_comm_ns_total: int  # first bucket's begin to last one's end: wait and transfer
    ddp_overlap_ns_total: int
    ddp_last_iteration: int
    ddp_last_begin_real_ns: int
    ddp_last_comm_ns: int
    ddp_bytes: int
    groups: tuple[GroupSample, ...]


def collectives_sample(body: bytes) -> CollectivesSample:
    """`body` is a CollectivesBody of csrc/core/layout_collectives.h."""
    words = layout.COLLECTIVES_SCALARS.unpack_from(body)
    groups = []
    for slot in range(min(words[0], layout.COLLECTIVE_GROUPS)):
        at = layout.COLLECTIVES_SCALARS.size + slot * layout.GROUP_STATE.size
        raw, *numbers = layout.GROUP_STATE.unpack_from(body, at)
        text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
        name = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
        groups.append(GroupSample(name, *numbers))
    return CollectivesSample(
        groups_total=words[0],
        ddp_samples_total=words[1],
        ddp_comm_ns_total=words[2],
        ddp_overlap_ns_total=words[3],
        ddp_last_iteration=words[4],
        ddp_last_begin_real_ns=words[5],
        ddp_last_comm_ns=words[6],
        ddp_bytes=words[7],
        groups=tuple(groups),
    )

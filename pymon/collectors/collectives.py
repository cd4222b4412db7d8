"""The page's section of collectives -> the model. Whatever a trainer claims is bounded to what a metric can hold."""

from __future__ import annotations

from pymon.collectors.gpu_work import MAX_COUNT
from pymon.link.collectives_section import CollectivesSample
from pymon.model.collectives import Collectives, ProcessGroup


def collectives(sample: CollectivesSample | None, now_mono_ns: int) -> Collectives | None:
    """The section as it stands at `now_mono_ns`."""
    if sample is None:
        return None
    return Collectives(
        groups_total=min(sample.groups_total, MAX_COUNT),
        groups=tuple(
            ProcessGroup(
                name=group.name,
                size=min(group.size, MAX_COUNT),
                rank=min(group.rank, MAX_COUNT),
                sequence_total=min(group.sequence, MAX_COUNT),
                idle_s=max(0, now_mono_ns - group.changed_mono_ns) / 1e9,
            )
            for group in sample.groups
        ),
        ddp_samples_total=min(sample.ddp_samples_total, MAX_COUNT),
        ddp_comm_s_total=sample.ddp_comm_ns_total / 1e9,
        ddp_overlap_s_total=sample.ddp_overlap_ns_total / 1e9,
        ddp_last_iteration=min(sample.ddp_last_iteration, MAX_COUNT),
        ddp_last_begin_real_ns=sample.ddp_last_begin_real_ns,
        ddp_bytes=min(sample.ddp_bytes, MAX_COUNT),
    )

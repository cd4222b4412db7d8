"""The GPU layers' sections of the page, with names: what CUDA events measured, and the sums over CUPTI's records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pymon.link import layout

STATES: Final = ("off", "running", "yielded", "absent", "disarmed")  # enum LayerState, in its order
# enum WorkClass of csrc/core/layout.h, in its order; tests/link holds the two against each other.
WORK_CLASSES: Final = (
    "gemm",
    "attention",
    "convolution",
    "elementwise",
    "reduction",
    "normalisation",
    "softmax",
    "embedding",
    "indexing",
    "optimizer",
    "other",
    "nccl_all_reduce",
    "nccl_all_gather",
    "nccl_reduce_scatter",
    "nccl_broadcast",
    "nccl_reduce",
    "nccl_send_recv",
    "nccl_other",
    "copy_host_to_device",
    "copy_device_to_host",
    "copy_device_to_device",
    "copy_peer",
    "copy_other",
    "set",
    "sync_event",
    "sync_stream",
    "sync_context",
    "stream_wait",
)


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One whole state of the event layer; durations in nanoseconds of GPU time, totals since the attach."""

    state: str  # one of STATES
    reason: str
    steps_timed_total: int
    steps_untimed_total: int
    step_ns_total: int
    last_step: int  # 0: none
    last_step_ns: int
    marks_total: int
    dropped_total: int
    skipped_total: int  # on a capturing stream or in another CUDA context
    failed_total: int
    pending: int
    own_cpu_ns_total: int
    stride: int
    phase_ns_total: tuple[int, ...]  # the slots that part a step
    step_histogram: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GpuStepSample:
    """GPU time of one step, in nanoseconds."""

    step: int
    gpu_ns: int
    phase_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WorkSample:
    """One class of GPU work. `histogram` has layout.WORK_BUCKETS log2 buckets of durations."""

    count: int
    ns_total: int
    ns_max: int
    bytes_total: int
    histogram: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CuptiSample:
    """One whole state of the CUPTI layer; durations in nanoseconds, totals since the attach."""

    state: str  # one of STATES
    reason: str
    cupti_version: int
    last_error: int
    records_total: int
    dropped_total: int
    zero_times_total: int
    bad_times_total: int
    late_total: int
    buffers_out: int
    buffers_refused_total: int
    buffers_lost_total: int
    host_bytes: int
    own_cpu_ns_total: int
    handovers_total: int
    stolen_total: int
    busy_ns_total: int
    kernel_busy_ns_total: int
    compute_busy_ns_total: int
    nccl_busy_ns_total: int
    nccl_exposed_ns_total: int
    gap_ns_total: int
    gaps_total: int
    kernels_total: int
    graph_kernels_total: int
    launches_total: int
    devices: int
    device_bytes: int
    yielded_ns_total: int
    gap_histogram: tuple[int, ...]
    work: tuple[tuple[str, WorkSample], ...]  # the classes that occurred


def gpu_sample(body: bytes) -> GpuSample:
    """`body` is a GpuBody of csrc/core/layout.h."""
    words = layout.GPU_SCALARS.unpack_from(body)
    phases = layout.TRAIN_PHASES.unpack_from(body, layout.GPU_PHASES_BYTE)
    return GpuSample(
        state=_state(words[0]),
        reason=text_at(body, layout.GPU_REASON_BYTE),
        steps_timed_total=words[2],
        steps_untimed_total=words[3],
        step_ns_total=words[4],
        last_step=words[5],
        last_step_ns=words[6],
        marks_total=words[7],
        dropped_total=words[8],
        skipped_total=words[9] + words[10],
        failed_total=words[11],
        pending=words[12],
        own_cpu_ns_total=words[13],
        stride=words[14],
        phase_ns_total=phases[: layout.STEP_PHASES],
        step_histogram=layout.TRAIN_HISTOGRAM.unpack_from(body, layout.GPU_HISTOGRAM_BYTE),
    )


def gpu_steps(raw: bytes) -> tuple[GpuStepSample, ...]:
    """`raw` is any number of GpuRingEntry."""
    return tuple(
        GpuStepSample(words[0], words[1], words[2:7])
        for words in layout.GPU_RING_ENTRY.iter_unpack(raw)
    )


def cupti_sample(body: bytes) -> CuptiSample:
    """`body` is a CuptiBody of csrc/core/layout.h."""
    words = layout.CUPTI_SCALARS.unpack_from(body)
    return CuptiSample(
        state=_state(words[0]),
        reason=text_at(body, layout.CUPTI_REASON_BYTE),
        cupti_version=words[2],
        last_error=words[3],
        records_total=words[4],
        dropped_total=words[5],
        zero_times_total=words[6],
        bad_times_total=words[7],
        late_total=words[9],
        buffers_out=words[11],
        buffers_refused_total=words[12],
        buffers_lost_total=words[13],
        host_bytes=words[14],
        own_cpu_ns_total=words[15],
        handovers_total=words[19],
        stolen_total=words[20],
        busy_ns_total=words[22],
        kernel_busy_ns_total=words[23],
        compute_busy_ns_total=words[24],
        nccl_busy_ns_total=words[25],
        nccl_exposed_ns_total=words[26],
        gap_ns_total=words[27],
        gaps_total=words[28],
        kernels_total=words[29],
        graph_kernels_total=words[30],
        launches_total=words[31],
        devices=words[34],
        device_bytes=words[35],
        yielded_ns_total=words[36],
        gap_histogram=layout.WORK_HISTOGRAM.unpack_from(body, layout.CUPTI_GAPS_BYTE),
        work=tuple(_work(body)),
    )


def _work(body: bytes) -> list[tuple[str, WorkSample]]:
    found = []
    for index, name in enumerate(WORK_CLASSES):
        at = layout.CUPTI_HEAD_BYTES + index * layout.WORK_SUMS_BYTES
        words = layout.WORK_SUMS.unpack_from(body, at)
        if words[0]:
            found.append((name, WorkSample(words[0], words[1], words[2], words[3], words[4:])))
    return found


def _state(number: int) -> str:
    return STATES[number] if number < len(STATES) else "off"  # of a later pymon: not known here


def text_at(body: bytes, at: int) -> str:
    """Another user's process wrote it: cut at its end, printable characters only."""
    text = body[at : at + layout.REASON_BYTES].split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)

"""Reports as the renderers get them."""

from __future__ import annotations

from pymon.base.units import ratio
from pymon.model.diagnosis import Bottleneck, CodeSite, Confidence, Diagnosis, Evidence
from pymon.model.trace import (
    GpuTime,
    LoaderTime,
    NamedTime,
    ScalarReads,
    TraceFacts,
    TraceReport,
    WindowSource,
)

EVIL = '<script>alert(1)</script>[bold]&"'


def gpu_time() -> GpuTime:
    return GpuTime(
        busy_s=0.6, compute_s=0.5, communication_s=0.1, copy_s=0.0, exposed_communication_s=0.1,
        exposed_copy_s=0.0, idle_s=0.4, idle_by_data_s=0.3, idle_by_gpu_s=0.0, idle_by_sync_s=0.05,
        idle_by_allocator_s=0.0, idle_by_host_s=0.05, sync_recoverable_s=0.05,
        launch_to_start_p50_s=1e-5, kernel_p50_s=1e-5, kernels_total=9, pageable_to_device_bytes=0,
        pageable_to_device_api_s=0.0,
    )  # fmt: skip


def facts(gpu: GpuTime | None) -> TraceFacts:
    return TraceFacts(
        path=f"/x/{EVIL}.json", bytes_total=9, events_total=9, rank=3, world_size=8,
        host_name=EVIL, gpu_name=EVIL, window_source=WindowSource.PROFILER_STEPS, window_s=1.0,
        steps_total=4, step_s=(0.25,) * 4, gpu=gpu,
        loader=LoaderTime(4, 0.3, 0.1, None), reads=ScalarReads(0, 0, 0.0), blocked_s=0.0,
        waited_s=0.0, blocking=(), operators_s=0.5, top_operators=(NamedTime(EVIL, 3, 0.1),),
        top_kernels=(NamedTime(EVIL, 3, 0.1),), sites=(), call_sites=None, cut_short=False,
        usable=True, problems=(EVIL,),
    )  # fmt: skip


def report(gpu: GpuTime | None) -> TraceReport:
    site = CodeSite(EVIL, 12, EVIL, EVIL, 1000, 0.2, exact_line=True)
    found = Diagnosis(
        "rule", Bottleneck.DATA, EVIL, Confidence.HIGH, (Evidence(EVIL, ratio(0.3)),),
        (EVIL,), (site,), 0.3,
    )  # fmt: skip
    return TraceReport((facts(gpu),), (found,), (EVIL,))

"""Every metric that pymon exports: the exporter, `docs/metrics.md` and the tests are checked against this list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pymon.model.catalog_gpu import GPU_METRICS, NVML_METRICS
from pymon.model.catalog_host import HOST_METRICS, NODE_METRICS
from pymon.model.catalog_jobs import JOB_METRICS
from pymon.model.catalog_probe import PROBE_METRICS, PROCESS
from pymon.model.catalog_run import RUN_METRICS
from pymon.model.metric import Metric

# In the order in which families are written; the series cap drops from the end.
CATALOG: Final[tuple[Metric, ...]] = (
    Metric("pymon_build_info", "gauge", "Version of the daemon, and what it reads from a test's double; always 1.",
           ("version", "doubles")),
    Metric("pymon_collector_up", "gauge", "1 for the state in which the collector's last run ended, 0 for the others.",
           ("collector", "state")),
    Metric("pymon_collector_duration_seconds", "gauge", "How long the collector's last run took.", ("collector",)),
    Metric("pymon_daemon_cpu_seconds_total", "counter", "Processor time that the daemon has used."),
    Metric("pymon_daemon_resident_memory_bytes", "gauge", "Resident memory of the daemon."),
    Metric("pymon_daemon_ticks_skipped_total", "counter", "Ticks that came too late and were skipped."),
    Metric("pymon_journal_dropped_total", "counter", "Rows that the journal could not keep (disk or queue full)."),
    Metric("pymon_connections_refused_total", "counter", "Connections to the agent socket beyond its bounds."),
    Metric("pymon_pages_refused_total", "counter",
           "Pages of probes that were refused, or dropped because they lied; the log says why."),
    Metric("pymon_series_dropped_total", "counter", "Series left out since the cap of the configuration was reached."),
    Metric("pymon_incident", "gauge", "1 while an incident lasts.", ("detector", *PROCESS)),
    Metric("pymon_incidents_total", "counter", "Incidents that have begun.", ("detector",)),
    Metric("pymon_captures_total", "counter", "Captures by how they ended, one count for each process.",
           ("kind", "status")),
    Metric("pymon_process_info", "gauge", "An attached training process; always 1.",
           (*PROCESS, "local_rank", "world_size", "script", "run_id", "counting")),
    Metric("pymon_process_up", "gauge", "1 while the process lives; 0 for 15 minutes after it ended.", PROCESS),
    Metric("pymon_steps_total", "counter", "Finished training steps; none while the probe is disarmed.", PROCESS),
    Metric("pymon_last_step_timestamp_seconds", "gauge", "When the last step ended, in Unix time.", PROCESS),
    Metric("pymon_steps_lost_total", "counter", "Steps whose single records were overwritten before they were "
           "read, or left away; they are in pymon_steps_total all the same.", PROCESS),
    Metric("pymon_phase_seconds_total", "counter", "Step time by phase; they sum to it but for steps without them.",
           ("phase", *PROCESS)),
    Metric("pymon_step_seconds", "histogram", "Step time, in buckets that double.", PROCESS),
    Metric("pymon_backwards_total", "counter", "Backward passes.", PROCESS),
    Metric("pymon_optimizer_calls_total", "counter", "Optimizer step calls (attempts: a skipped update counts too).",
           PROCESS),
    Metric("pymon_batches_total", "counter", "Batches that the training thread fetched.", PROCESS),
    Metric("pymon_probe_cost_seconds_total", "counter", "Time that the probe's own hooks took from training.", PROCESS),
    Metric("pymon_probe_overhead_ratio", "gauge", "What the probe cost per step time in its last window of ten "
           "seconds or more: its hooks and its threads' processor time.", PROCESS),
    Metric("pymon_probe_shed", "gauge", "What the probe leaves away: 0 nothing, 1 sums over CUPTI's records, 2 phases "
           "too, 3 single steps too, 4 everything (`pymon disarm`).", PROCESS),
    Metric("pymon_probe_sheds_total", "counter", "Times that the probe left a layer away to hold its budget.", PROCESS),
    Metric("pymon_user_phase_seconds_total", "counter", "Time in pymon.phase(name); may overlap the other phases.",
           ("name", *PROCESS)),
    Metric("pymon_cuda_layer_running", "gauge", "1 while a GPU layer of the probe runs: CUDA events, or sums over "
           "CUPTI's records. 0: yielded to a profiler, absent or switched off; `pymon status` says why.",
           ("layer", *PROCESS)),
    Metric("pymon_cuda_layer_cpu_seconds_total", "counter", "Processor time of the layer's own thread.",
           ("layer", *PROCESS)),
    Metric("pymon_cuda_layer_lost_total", "counter", "Events or records that were lost or carried no usable time.",
           ("layer", *PROCESS)),
    Metric("pymon_cuda_steps_timed_total", "counter", "Steps whose GPU time was measured, by CUDA events.", PROCESS),
    Metric("pymon_cuda_step_seconds_total", "counter", "GPU time of these steps on torch's current stream, its waits "
           "included.", PROCESS),
    Metric("pymon_cuda_phase_seconds_total", "counter", "Likewise by phase; the phases sum to the step time.",
           ("phase", *PROCESS)),
    Metric("pymon_cuda_yielded_seconds_total", "counter", "Time in which CUPTI was lent to another profiler: the "
           "families below stand still.", PROCESS),
    Metric("pymon_cuda_busy_seconds_total", "counter", "GPU busy time: union of kernels, copies and sets over streams, "
           "summed over the process's GPUs.", PROCESS),
    Metric("pymon_cuda_compute_busy_seconds_total", "counter", "Union of the kernels that are not NCCL's.", PROCESS),
    Metric("pymon_cuda_nccl_busy_seconds_total", "counter", "Union of NCCL's kernels.", PROCESS),
    Metric("pymon_cuda_nccl_exposed_seconds_total", "counter", "Of it, what no other kernel overlapped.", PROCESS),
    Metric("pymon_cuda_gap_seconds_total", "counter", "Idle time between busy stretches.", PROCESS),
    Metric("pymon_cuda_gaps_total", "counter", "Idle gaps between busy stretches.", PROCESS),
    Metric("pymon_cuda_launches_total", "counter", "Kernel launches; a CUDA graph is one.", PROCESS),
    Metric("pymon_cuda_work_seconds_total", "counter", "GPU time by class of work: kernels by their names, NCCL by "
           "collective, copies by direction.", ("work", *PROCESS)),
    Metric("pymon_cuda_work_total", "counter", "How many, by class of work.", ("work", *PROCESS)),
    Metric("pymon_cuda_copied_bytes_total", "counter", "Bytes copied or set, by class of work.", ("work", *PROCESS)),
    *PROBE_METRICS,
    *RUN_METRICS,
    *JOB_METRICS,
    *NODE_METRICS,
    *NVML_METRICS,
    *GPU_METRICS,
    *HOST_METRICS,
)  # fmt: skip

BY_NAME: Final = {metric.name: metric for metric in CATALOG}


def markdown() -> str:
    """`docs/metrics.md`, whole."""
    return "\n".join([*_INTRODUCTION, *_rows(), ""])


_INTRODUCTION: Final = (
    "# Metrics",
    "",
    "Generated from `pymon/model/catalog.py` by `python -m pymon.model.catalog`; a test holds the two together.",
    "",
    "What is absent is not exported, neither as 0 nor as NaN. A training process is labelled `rank` (empty where it",
    "has none), `job_id` and `pid`; everything else about it stands in `pymon_process_info`, to be joined. Series of a",
    "process that ended stay for 15 minutes. At most `prometheus.series_max` series are served (by default 1,000, and",
    "250 more for each GPU): families are written in the order below; what is beyond is dropped from the end, counted.",
    "`prometheus.disabled` switches families off by name or pattern, `collectors.disabled` what they are read from.",
    "",
    "`step_slow` compares with at least 20 earlier steps of the process, the least for which TraceML judges.",
    "",
    "| metric | kind | labels | meaning | since |",
    "|---|---|---|---|---|",
)  # fmt: skip


def _rows() -> Iterator[str]:
    for metric in CATALOG:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {metric.since} |"


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - the generator of the page

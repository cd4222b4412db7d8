"""The metric families of jobs, in the order of writing. Who a job is stands in pymon_job_info alone."""

from __future__ import annotations

from typing import Final

from pymon.model.metric import Metric

JOB_METRICS: Final[tuple[Metric, ...]] = (
    Metric("pymon_job_info", "gauge", "A training process and the job that it belongs to, once for each GPU that it "
           "holds; always 1. `job_id`: as the process says, else as its manager's paths say.",
           ("gpu", "uuid", "gpu_instance_id", "rank", "job_id", "pid", "user", "manager", "slurm_step", "pod_uid",
            "container_id", "unit", "cgroup")),
    Metric("pymon_pod_gpu_info", "gauge", "A GPU, MIG device or share that a container was given, by the kubelet; "
           "always 1.", ("uuid", "namespace", "pod", "container")),
    Metric("pymon_gpu_holders", "gauge", "Processes on the GPU by the driver: `attached` with a probe, `unattached` "
           "without, `gone` dead for 30 s, `unknown` where the driver's pids cannot be looked up.",
           ("gpu", "uuid", "owner")),
    Metric("pymon_job_gpu_allocated_seconds_total", "counter", "GPU time in which a process of the job held the GPU "
           "and the driver told its use. A shared GPU counts whole for each job.", ("user", "job_id")),
    Metric("pymon_job_gpu_idle_seconds_total", "counter", "Of it, time in which no kernel ran on the GPU.",
           ("user", "job_id")),
)  # fmt: skip

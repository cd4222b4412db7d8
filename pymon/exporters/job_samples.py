"""The samples of jobs: each family of `pymon.model.catalog_jobs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pymon.exporters.sample import Labels, Part, Sample
from pymon.model.jobs import JobProcess, JobsSection
from pymon.model.pods import PodsSection
from pymon.model.snapshot import Snapshot


def about_jobs(snapshot: Snapshot) -> Iterator[Part]:
    """Whose the GPUs are."""
    if pods := snapshot.get(PodsSection):
        yield "pods", pods, _pods(pods)
    if jobs := snapshot.get(JobsSection):
        yield "jobs", jobs, _jobs(jobs)


def _pods(section: PodsSection) -> Iterator[Sample]:
    for one in section.gpus:
        yield "pymon_pod_gpu_info", (one.uuid, one.namespace, one.pod, one.container), 1


def _jobs(section: JobsSection) -> Iterator[Sample]:
    for process in section.processes:
        for gpu, uuid, instance in process.gpus or (("", "", None),):
            yield "pymon_job_info", (*_gpu(gpu, uuid, instance), *_labels(process)), 1
    owners = Counter((str(h.gpu), h.uuid, h.owner.value) for h in section.holdings)
    for labels, count in sorted(owners.items()):
        yield "pymon_gpu_holders", labels, count
    for time in section.gpu_times:
        named = (time.user, time.job_id)
        yield "pymon_job_gpu_allocated_seconds_total", named, time.allocated_s_total
        yield "pymon_job_gpu_idle_seconds_total", named, time.idle_s_total


def _gpu(gpu: int | str, uuid: str, instance: int | None) -> Labels:
    return (str(gpu), uuid, "" if instance is None else str(instance))


def _labels(process: JobProcess) -> Labels:
    who = process.identity
    return (
        "" if process.rank is None else str(process.rank),
        process.job_id,
        str(process.label_pid),
        process.user,
        who.manager.value,
        who.slurm_step,
        who.pod_uid,
        who.container_id[:12],
        who.unit,
        who.group,
    )

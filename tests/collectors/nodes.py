"""What the tick before knew: a double of the pipeline's newest snapshot."""

from dataclasses import replace

from pymon.model.gpu import FastReadings, GpuProcess, SlowReadings
from pymon.model.jobs import JobIdentity, JobProcess, JobsSection
from pymon.model.snapshot import Outcome, Snapshot, State
from pymon.model.training import TrainingSection
from tests.detectors.histories import PROCESS
from tests.exporters.gpus import gpu, section


def trainer(pid, host_pid="same", **more):
    """A process with a probe."""
    facts = {
        "attach_id": f"{pid:032x}",
        "pid": pid,
        "host_pid": pid if host_pid == "same" else host_pid,
    }
    return replace(PROCESS, **facts, **more)


def known(*trainers, gpus=(), jobs=None):
    """A snapshot, as collectors ask for it."""
    sections = [TrainingSection(trainers), section(*gpus), jobs]
    outcomes = [
        Outcome(type(one).__name__, State.OK, 0.0, one) for one in sections if one is not None
    ]
    return lambda: Snapshot(0, 0, tuple(outcomes))


def watching(*pids, **more):
    """A snapshot whose jobs are these processes; rank and job as `trainer` has them."""
    return known(jobs=JobsSection(tuple(job_process(pid) for pid in pids), (), (), True), **more)


def job_process(pid, **more):
    facts = {
        "pid": pid,
        "attach_id": "",
        "label_pid": pid,
        "label_job_id": "77",
        "uid": 0,
        "user": "root",
        "rank": 0,
        "job_id": "77",
        "identity": JobIdentity(),
        "gpus": (),
        "start_ticks": 1,
    }
    return JobProcess(**(facts | more))


def held(index, *pids, use=0.5, instance=None, mig=()):
    """A GPU that these processes hold."""
    listed = tuple(GpuProcess(pid, 1000, instance) for pid in pids)
    slow = SlowReadings(processes=listed)
    return gpu(index, fast=FastReadings(utilization_ratio=use, mig=mig), slow=slow)


def whys(found):
    """What is absent and why, of a section."""
    return {(one.what, one.why.value): one.count for one in found.absent}

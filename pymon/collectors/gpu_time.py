"""For how long jobs held GPUs, and for how long of that no kernel ran."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pymon.model.gpu import Gpu
from pymon.model.jobs import GpuTime, Holding, JobProcess

_FORGET_S = 900.0  # as long as the series of a process that ended
_JOBS_MAX = 128


@dataclass(slots=True)
class _Spent:
    allocated_s: float = 0.0
    idle_s: float = 0.0
    seen_ns: int = 0


@dataclass(slots=True)
class GpuTimes:
    """Sums by user and job. A GPU whose use the driver does not tell counts neither as idle nor as allocated.

    More than `gap_s` between two looks is time that nobody watched, and is not counted.
    """

    gap_s: float
    _spent: dict[tuple[str, str], _Spent] = field(default_factory=dict)
    _last_ns: int | None = None

    def note(
        self,
        gpus: Iterable[Gpu],
        holdings: Iterable[Holding],
        processes: Iterable[JobProcess],
        now_ns: int,
    ) -> None:
        """Adds the time since the call before."""
        since_s = 0.0 if self._last_ns is None else (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        jobs = {process.pid: (process.user, process.job_id) for process in processes}
        by_uuid = {gpu.uuid: gpu for gpu in gpus}
        held = {
            (jobs[holding.pid], holding.uuid, holding.gpu_instance_id)
            for holding in holdings
            if holding.pid in jobs
        }
        for job, uuid, instance in held:
            idle = is_idle(by_uuid[uuid], instance)
            if job in self._spent:
                self._spent[job].seen_ns = now_ns
            if idle is None or since_s > self.gap_s:
                continue
            spent = self._spent.setdefault(job, _Spent(seen_ns=now_ns))
            spent.allocated_s += since_s
            spent.idle_s += since_s if idle else 0.0

    def all(self, now_ns: int) -> tuple[GpuTime, ...]:
        """Of jobs that hold one or did lately."""
        newest = sorted(self._spent, key=lambda job: -self._spent[job].seen_ns)[:_JOBS_MAX]
        self._spent = {
            job: self._spent[job]
            for job in newest
            if now_ns - self._spent[job].seen_ns <= _FORGET_S * 1e9
        }
        return tuple(
            GpuTime(*job, spent.allocated_s, spent.idle_s)
            for job, spent in sorted(self._spent.items())
        )


def is_idle(gpu: Gpu, gpu_instance_id: int | None) -> bool | None:
    """Whether no kernel ran in the driver's last window; None where it does not tell (a GPU cut into instances)."""
    if gpu.fast is None:
        return None
    if gpu_instance_id is None:
        use = gpu.fast.utilization_ratio
        return None if use is None else use == 0
    for instance in gpu.fast.mig:
        if instance.gpu_instance_id == gpu_instance_id and instance.activity is not None:
            active = instance.activity.graphics_active_ratio
            return None if active is None else active == 0
    return None

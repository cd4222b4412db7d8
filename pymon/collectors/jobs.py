"""Whose the GPUs are: what the driver lists joined with what probes say of themselves and with the kernel's paths."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.clock import Clock, SystemClock
from pymon.base.printable import printable
from pymon.collectors.absences import Absences
from pymon.collectors.gpu_time import GpuTimes
from pymon.collectors.host_pids import HostPids
from pymon.collectors.looks import LOOK_S, Facts, Looks
from pymon.collectors.watching import WATCHED_MAX, Newest, no_snapshot
from pymon.model.absence import Why
from pymon.model.gpu import Gpu, GpuProcess, GpuSection
from pymon.model.jobs import Holding, JobProcess, JobsSection, Owner
from pymon.model.training import TrainingProcess, TrainingSection
from pymon.sources.process import Processes

# A process that ended stays in the driver's list until its next reading, and its GPU takes a moment to be let go.
GONE_S = 3 * LOOK_S
_EACH_S = 5.0


def user_name(uid: int) -> str:
    """By the system's user data base, which may ask the network; the number where that knows none."""
    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except (KeyError, OverflowError):
        return str(uid)


@dataclass(slots=True)
class JobsCollector:
    """Gives one `JobsSection`: GPU -> process -> rank -> job, processes that hold a GPU with no owner, idle GPU time.

    Source: the driver's process lists and the probes' self-reports of the tick before; /proc/PID/{stat,status,cgroup};
        the user data base.
    Cost: three reads for each training process each ten seconds.
    Errors: where the driver's pids are not those of this /proc (a container without the host's pids) their owners are
        `unknown`; what cannot be read is left empty and counted. Nothing is guessed.
    """

    name: ClassVar[str] = "jobs"
    interval_s: ClassVar[float] = _EACH_S
    timeout_s: ClassVar[float] = 0.5
    processes: Processes = field(default_factory=Processes)
    newest: Newest = no_snapshot
    clock: Clock = field(default_factory=SystemClock)
    user_name: Callable[[int], str] = user_name
    _looks: Looks | None = None
    _users: dict[int, str] = field(default_factory=dict)
    _lists: dict[str, tuple[GpuProcess, ...]] = field(default_factory=dict)  # by GPU
    _gone: dict[tuple[str, int], int] = field(default_factory=dict)  # GPU and pid -> since when
    _pids: HostPids | None = None
    _times: GpuTimes = field(default_factory=lambda: GpuTimes(gap_s=3 * _EACH_S))

    def collect(self) -> JobsSection:
        """Read once."""
        now_ns = self.clock.monotonic_ns()
        snapshot = self.newest()
        training = snapshot.get(TrainingSection) if snapshot else None
        gpu_section = snapshot.get(GpuSection) if snapshot else None
        gpus = gpu_section.gpus if gpu_section else ()
        if self._pids is None or self._looks is None:
            self._pids, self._looks = HostPids(self.processes), Looks(self.processes)
        living = [p for p in training.processes if p.ended is None] if training else []
        resolving = Absences()
        trainers = self._pids.resolve(living, now_ns, resolving)
        host_pids = self._pids.driver_pids_are_ours(now_ns)
        self._lists = {gpu.uuid: self._listed(gpu) for gpu in gpus}
        holders = {process.pid for listed in self._lists.values() for process in listed}
        absences = self._looks.at({*trainers, *(holders if host_pids else ())}, now_ns)
        absences = absences.together(resolving)
        holdings = tuple(self._holdings(gpus, trainers, host_pids, now_ns))
        found = tuple(self._processes(trainers, holdings, absences))
        self._times.note(gpus, holdings, found, now_ns)
        return JobsSection(found, holdings, self._times.all(now_ns), host_pids, absences.all())

    def _listed(self, gpu: Gpu) -> tuple[GpuProcess, ...]:
        """Of a GPU that does not answer (it hangs, is lost) what it told last: whose it is matters most then."""
        if gpu.slow is None or gpu.slow.processes is None:
            return self._lists.get(gpu.uuid, ())
        return gpu.slow.processes

    def _holdings(
        self,
        gpus: Iterable[Gpu],
        trainers: dict[int, TrainingProcess],
        host_pids: bool,
        now_ns: int,
    ) -> Iterator[Holding]:
        still: dict[tuple[str, int], int] = {}
        for gpu in gpus:
            for process in self._lists[gpu.uuid]:
                facts = self._facts(process.pid) if host_pids else None
                owner = Owner.UNKNOWN
                if facts is not None and facts.start_ticks is None:
                    if not _tells(gpu):
                        continue  # an old list
                    key = (gpu.uuid, process.pid)
                    still[key] = self._gone.get(key, now_ns)
                    if now_ns - still[key] < GONE_S * 1e9:
                        continue  # it has only just ended
                    owner = Owner.GONE
                elif facts is not None:
                    owner = Owner.ATTACHED if process.pid in trainers else Owner.UNATTACHED
                yield Holding(
                    gpu.index,
                    gpu.uuid,
                    process.gpu_instance_id,
                    process.pid,
                    process.memory_bytes,
                    owner,
                )
        self._gone = still

    def _processes(
        self,
        trainers: dict[int, TrainingProcess],
        holdings: tuple[Holding, ...],
        absences: Absences,
    ) -> Iterator[JobProcess]:
        """Those with a probe first, then by pid."""
        living = [h for h in holdings if h.owner in (Owner.ATTACHED, Owner.UNATTACHED)]
        pids = sorted({*trainers, *(h.pid for h in living)}, key=lambda p: (p not in trainers, p))
        if (left := len(pids) - WATCHED_MAX) > 0:
            absences.note("process", Why.TOO_MANY, f"{len(pids)} processes", left)
        for pid in pids[:WATCHED_MAX]:
            facts, trainer = self._facts(pid), trainers.get(pid)
            if facts is None or facts.start_ticks is None:
                continue
            if trainer is not None and facts.uid != trainer.uid:
                absences.note("process", Why.OUT_OF_SIGHT, f"{pid} belongs to another user here")
                continue
            job_id = (trainer.job_id if trainer else "") or facts.identity.job
            held = {(h.gpu, h.uuid, h.gpu_instance_id) for h in living if h.pid == pid}
            yield JobProcess(
                pid=pid,
                attach_id=trainer.attach_id if trainer else "",
                label_pid=trainer.pid if trainer else pid,
                label_job_id=trainer.job_id if trainer else job_id,
                uid=facts.uid,
                user=self._user(facts.uid),
                rank=trainer.rank if trainer else None,
                job_id=job_id,
                identity=facts.identity,
                gpus=tuple(sorted(held, key=lambda one: (one[0], one[2] or 0))),
                start_ticks=facts.start_ticks,
            )

    def _facts(self, pid: int) -> Facts | None:
        return self._looks.facts.get(pid) if self._looks is not None else None

    def _user(self, uid: int) -> str:
        if uid not in self._users:
            self._users[uid] = self.user_name(uid)
        return self._users[uid]


def _tells(gpu: Gpu) -> bool:
    return gpu.slow is not None and gpu.slow.processes is not None

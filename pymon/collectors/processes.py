"""The training processes of this node, from the pages that their probes handed over."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from pymon.base.clock import Clock, SystemClock
from pymon.collectors.arrivals import Arrivals, Member
from pymon.collectors.collectives import collectives
from pymon.collectors.gpu_work import MAX_COUNT, cuda_events, cupti_sums
from pymon.collectors.memory import memory, memory_lie
from pymon.collectors.page_truth import STUCK_LOOKS, lie
from pymon.collectors.recorded import recorded
from pymon.collectors.run_progress import progress
from pymon.collectors.training_events import training_events
from pymon.collectors.trend import Trends
from pymon.link import layout
from pymon.link.collectives_section import CollectivesSample
from pymon.link.memory_section import MemorySample
from pymon.link.page import PageReader, StepSample, TrainSample
from pymon.link.recorder_section import RecorderSample
from pymon.link.wire import Hello
from pymon.model.distribution import Histogram
from pymon.model.recorded import NO_WAITS, Waits
from pymon.model.training import (
    PHASES,
    Counting,
    Shed,
    StepRecord,
    TrainingProcess,
    TrainingSection,
)

KEEP_ENDED_S = 900.0  # so that an alert about a process outlives it long enough to be read
KEEP_ENDED_MAX = (
    128  # of one user; a node's GPUs many times over, and a bound against one who attaches and ends
)
_SHED = tuple(Shed)  # in the page's order
COUNTING = (Counting.NONE, Counting.OPTIMIZER, Counting.EXPLICIT, Counting.BACKWARD)


class Attached(Protocol):
    """A trainer as the agent server knows it."""

    hello: Hello
    page: PageReader
    ended: str | None

    @property
    def pid(self) -> int: ...
    @property
    def host_pid(self) -> int | None: ...
    @property
    def uid(self) -> int: ...
    def drop(self, why: str) -> None: ...


@dataclass(slots=True)
class _Known:
    attached: Attached
    last_step: int = 0
    last_gpu_step: int = 0
    last_event: int = 0
    lost_total: int = 0
    newest: TrainingProcess | None = None
    member: Member | None = None  # of a group of ranks
    waits: Waits = NO_WAITS
    ended_ns: int | None = None
    sample: TrainSample | None = None  # the newest whole one
    stuck: int = 0  # looks since then
    trends: Trends = field(default_factory=Trends)
    lies: bool = False  # it is being dropped, and read no more


@dataclass(slots=True)
class ProcessesCollector:
    """Gives one `TrainingSection`: totals and the steps finished since the run before, for each attached process.

    Source: the sealed page of each process (csrc/core/layout.h), and whether the agent server still sees it.
    Cost: a copy of 11 KiB and of the new steps per process; no system call.
    Errors: none; a page without a whole state keeps the process as it stood before. One that stays so, or says what
        cannot be, is dropped with the reason. A process that ended stays for 15 minutes.
    """

    name: ClassVar[str] = "processes"
    interval_s: ClassVar[float] = (
        0.0  # each tick, however soon: what came last would count its steps again
    )
    timeout_s: ClassVar[float] = 1.0
    attachments: Callable[[], Iterable[Attached]]
    clock: Clock = field(default_factory=SystemClock)
    _known: dict[str, _Known] = field(default_factory=dict)
    _arrivals: Arrivals = field(default_factory=Arrivals)

    def collect(self) -> TrainingSection:
        """Read every page once."""
        now_ns = self.clock.monotonic_ns()
        for attached in list(self.attachments()):
            known = self._known.setdefault(attached.hello.attach_id, _Known(attached))
            if known.attached is not attached:  # a trainer that connected again
                known.attached.page.close()
                known.attached, known.ended_ns = attached, None
                known.sample, known.stuck, known.lies = None, 0, False
        self._forget(now_ns)
        processes = [self._read(known, now_ns) for known in list(self._known.values())]
        self._compare_ranks()
        return TrainingSection(tuple(process for process in processes if process is not None))

    def _compare_ranks(self) -> None:
        """What the pages tell together is in the next tick's processes."""
        living = [one.member for one in self._known.values() if one.member is not None]
        for attach_id, waits in self._arrivals.look(living).items():
            self._known[attach_id].waits = waits

    def _forget(self, now_ns: int) -> None:
        """Those that ended long ago, and the first to end of a user of whom too many did."""
        ended = sorted(
            (known.ended_ns, attach_id)
            for attach_id, known in self._known.items()
            if known.ended_ns is not None
        )
        left = Counter(self._known[attach_id].attached.uid for _, attach_id in ended)
        for ended_ns, attach_id in ended:
            uid = self._known[attach_id].attached.uid
            if now_ns - ended_ns > KEEP_ENDED_S * 1e9 or left[uid] > KEEP_ENDED_MAX:
                left[uid] -= 1
                del self._known[attach_id]

    def _read(self, known: _Known, now_ns: int) -> TrainingProcess | None:
        attached = known.attached
        if known.ended_ns is not None:
            return known.newest
        sample = None if known.lies else attached.page.train()
        used = attached.page.memory()
        steps, lost = attached.page.steps_after(known.last_step)
        if attached.ended is None and (why := _lie(known, sample, steps, used)):
            known.lies = True
            attached.drop(why)
        if known.lies:
            sample, steps, lost = None, (), 0
        gpu_steps = attached.page.gpu_steps_after(known.last_gpu_step)
        events = attached.page.events_after(known.last_event)
        if events:
            known.last_event = events[-1].number
        known.lost_total = min(known.lost_total + lost, MAX_COUNT)
        if steps:
            known.last_step = steps[-1].step
        if gpu_steps:
            known.last_gpu_step = gpu_steps[-1].step
        if sample is not None:
            known.sample, known.stuck = sample, 0
            process = _process(attached, known.lost_total, sample, steps, now_ns)
            groups, recorder = attached.page.collectives(), attached.page.recorder()
            of_groups = collectives(groups, now_ns)
            known.member = _member(attached, groups, recorder)
            known.newest = replace(
                process,
                progress=progress(attached.page.run(), now_ns),
                cuda_events=cuda_events(attached.page.gpu(), gpu_steps),
                cupti=cupti_sums(attached.page.cupti()),
                events=training_events(attached.page.events(), events),
                memory=memory(used, now_ns, known.trends, process.steps_total),
                collectives=of_groups,
                recorded=recorded(recorder, of_groups, self.clock.real_ns()),
                waits=known.waits,
            )
        elif known.newest is not None:
            known.newest = replace(_with_steps(known.newest, ()), ended=attached.ended)
        if attached.ended is not None:
            known.ended_ns, known.member = now_ns, None
            attached.page.close()  # this was the last look
            last = known.newest
            known.newest = last and _with_steps(last, ())
            return last
        return known.newest


def _member(
    attached: Attached, groups: CollectivesSample | None, recorder: RecorderSample | None
) -> Member:
    hello = attached.hello
    job = attached.uid, hello.job_id, hello.run_id, hello.world_size
    return Member(hello.attach_id, job, hello.rank, groups, recorder)


def _lie(
    known: _Known,
    sample: TrainSample | None,
    steps: tuple[StepSample, ...],
    used: MemorySample | None,
) -> str:
    if known.lies:
        return ""
    if sample is not None:
        return lie(known.sample, sample, steps[-1].step if steps else 0) or memory_lie(used)
    known.stuck += 1
    return "its lock is stuck" if known.stuck >= STUCK_LOOKS else ""


def _process(
    attached: Attached,
    lost_total: int,
    sample: TrainSample,
    steps: tuple[StepSample, ...],
    now_ns: int,
) -> TrainingProcess:
    hello = attached.hello
    boundary_ns = sample.last_boundary_mono_ns
    known = sample.counting < len(COUNTING)
    off = sample.shed == layout.SHED_ALL
    process = TrainingProcess(
        attach_id=hello.attach_id,
        pid=attached.pid,
        uid=attached.uid,
        rank=hello.rank,
        local_rank=hello.local_rank,
        world_size=hello.world_size,
        job_id=hello.job_id,
        run_id=hello.run_id,
        script=hello.script,
        attached_real_ns=hello.attached_real_ns,
        ended=attached.ended,
        counting=COUNTING[sample.counting] if known else Counting.NONE,
        steps_total=min(sample.steps_total, MAX_COUNT),
        steps_lost_total=lost_total,
        backwards_total=min(sample.backwards_total, MAX_COUNT),
        optimizer_calls_total=min(sample.optimizer_calls_total, MAX_COUNT),
        batches_total=min(sample.batches_total, MAX_COUNT),
        phase_s_total=tuple(spent_ns / 1e9 for spent_ns in sample.phase_ns_total),
        step_histogram=Histogram(
            layout.HISTOGRAM_FIRST_BOUND_NS / 1e9,
            tuple(min(count, MAX_COUNT) for count in sample.step_histogram),
            sample.step_ns_total / 1e9,
        ),
        own_cost_s_total=sample.own_ns_total / 1e9,
        # Of a probe that was switched off nobody knows when its last step was.
        open_step_age_s=max(0, now_ns - boundary_ns) / 1e9 if boundary_ns and not off else None,
        capturing=sample.capturing,
        new_steps=(),
        loader_workers=sample.loader_workers,
        user_phase_s_total=tuple((name, ns / 1e9) for name, ns in sample.user_phase_ns_total),
        shed=_SHED[sample.shed],
        sheds_total=min(sample.sheds_total, MAX_COUNT),
        overhead_ratio=sample.overhead_ratio,
        doing=None if sample.doing is None or off else PHASES[sample.doing],
        doing_age_s=None
        if sample.doing is None or off
        else max(0, now_ns - sample.doing_since_mono_ns) / 1e9,
        samples_total=_known(sample.samples_total),
        tokens_total=_known(sample.tokens_total),
        stall_s_total=sample.stall_ns_total / 1e9,
        usual_step_s=None if sample.usual_step_ns is None else sample.usual_step_ns / 1e9,
        evaluation_s_total=sample.evaluation_ns_total / 1e9,
        checkpoint_s_total=sample.checkpoint_ns_total / 1e9,
        host_pid=attached.host_pid,
    )
    return _with_steps(process, tuple(record(step) for step in steps))


def record(step: StepSample) -> StepRecord:
    """In seconds."""
    return StepRecord(
        step=step.step,
        end_mono_ns=step.end_mono_ns,
        duration_s=step.duration_ns / 1e9,
        phases_s=tuple(spent_ns / 1e9 for spent_ns in step.phase_ns),
        backwards=step.backwards,
        optimizer_calls=step.optimizer_calls,
        batches=step.batches,
        profiled=step.profiled,
        estimated=step.estimated,
        samples=_known(step.samples),
        tokens=_known(step.tokens),
        evaluation_s=step.evaluation_ns / 1e9,
        checkpoint_s=step.checkpoint_ns / 1e9,
    )


def _known(count: int | None) -> int | None:
    return None if count is None else min(count, MAX_COUNT)


def _with_steps(process: TrainingProcess, steps: tuple[StepRecord, ...]) -> TrainingProcess:
    """The process with these as its new steps, and what detectors compare: those that no capture disturbed."""
    events = process.cuda_events
    if events is not None and events.new_steps:
        process = replace(process, cuda_events=replace(events, new_steps=()))
    if process.events is not None and process.events.new:
        process = replace(process, events=replace(process.events, new=()))
    steady = [step for step in steps if not step.profiled]
    if not steady:
        return replace(
            process, new_steps=steps, new_steady=0, new_median_s=None, new_phase_mean_s=()
        )
    phased = [step.phases_s for step in steady if step.phases_s]
    return replace(
        process,
        new_steps=steps,
        new_steady=len(steady),
        new_median_s=statistics.median(step.duration_s for step in steady),
        new_phase_mean_s=tuple(map(statistics.fmean, zip(*phased, strict=True))),
    )

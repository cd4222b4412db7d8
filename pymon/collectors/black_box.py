"""A kept page -> `BlackBox`."""

from __future__ import annotations

from pymon.collectors.gpu_work import MAX_COUNT
from pymon.collectors.memory import memory
from pymon.collectors.processes import COUNTING, record
from pymon.collectors.run_progress import progress
from pymon.collectors.training_events import training_event
from pymon.link.kept_page import KeptPage
from pymon.link.page import TrainSample
from pymon.model.blackbox import BlackBox
from pymon.model.training import PHASES


def black_box(kept: KeptPage) -> BlackBox:
    """All that the page still tells. Raises PageError where it is none that this pymon reads."""
    page = kept.reader()
    try:
        sample = page.train()
        samples, _ = page.steps_after(0)
        used = memory(page.memory(), kept.ended_mono_ns)
        run = progress(page.run(), kept.ended_mono_ns)
        events = page.events_after(0)
        clocks_ns = page.header.created_real_ns - page.header.created_mono_ns
    finally:
        page.close()
    hello = kept.hello
    doing, doing_s = _doing(sample, kept.ended_mono_ns)
    last_ns = samples[-1].end_mono_ns if samples else 0
    event_ns = events[-1].begin_mono_ns + events[-1].duration_ns if events else 0
    return BlackBox(
        attach_id=hello.attach_id,
        pid=kept.pid,
        uid=kept.uid,
        rank=hello.rank,
        world_size=hello.world_size,
        job_id=hello.job_id,
        run_id=hello.run_id,
        script=hello.script,
        python=hello.python,
        torch=hello.torch,
        attached_real_ns=hello.attached_real_ns,
        ended_real_ns=kept.ended_real_ns,
        ended=kept.ended,
        evidence=kept.evidence,
        counting=COUNTING[sample.counting] if sample else None,
        steps_total=min(sample.steps_total, MAX_COUNT) if sample else None,
        capturing=sample.capturing if sample else None,
        doing=doing,
        doing_s=doing_s,
        since_step_s=max(0, kept.ended_mono_ns - last_ns) / 1e9 if last_ns else None,
        steps=tuple(record(step) for step in samples),
        step_began_real_ns=tuple(s.end_mono_ns - s.duration_ns + clocks_ns for s in samples),
        memory=used,
        state=run.state if run else None,
        state_s=run.state_age_s if run else None,
        events=tuple(map(training_event, events)),
        event_began_real_ns=tuple(event.begin_mono_ns + clocks_ns for event in events),
        last_event_s=max(0, kept.ended_mono_ns - event_ns) / 1e9 if event_ns else None,
    )


def _doing(sample: TrainSample | None, ended_ns: int) -> tuple[str | None, float | None]:
    if sample is None or sample.doing is None:
        return None, None
    return PHASES[sample.doing], max(0, ended_ns - sample.doing_since_mono_ns) / 1e9

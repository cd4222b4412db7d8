"""A black box as people read it: how the process ended, what it was at, its last steps."""

from __future__ import annotations

import datetime
import statistics

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pymon.base.units import human_bytes, human_seconds
from pymon.model.blackbox import BlackBox
from pymon.model.memory import AllocatorUse, HostUse
from pymon.model.progress import RunState
from pymon.model.training import PHASES, Counting, StepRecord

_BESIDE_STEPS = (RunState.EVALUATING, RunState.CHECKPOINTING)


def render(box: BlackBox, steps: int) -> RenderableType:
    """`steps`: how many of the last ones are listed."""
    ended = Text.assemble("  ended   ", (box.ended, "bold"), f", seen {_when(box)}")
    lines: list[RenderableType] = [Text(_who(box), style="bold"), ended]
    lines.extend(Text(f"          {line}") for line in box.evidence)
    lines.append(Text(f"  was     {_was(box)}"))
    lines.append(Text(f"  event   {_event(box)}"))
    lines.append(Text(f"  steps   {_counted(box)}"))
    if box.memory is not None:
        lines.extend(Text(f"  memory  {_allocator(one)}") for one in box.memory.allocators)
        if host := _host(box.memory.host):
            lines.append(Text(f"  host    {host}"))
    if box.steps:
        lines.append(_table(box, box.steps[-steps:]))
    return Group(*lines)


def _who(box: BlackBox) -> str:
    rank = f", rank {box.rank}" if box.rank is not None else ""
    of = f" of {box.world_size}" if rank and box.world_size else ""
    job = f", job {box.job_id}" if box.job_id else ""
    return f"pid {box.pid}{rank}{of}{job}, {box.script or 'no script'}"


def _when(box: BlackBox) -> str:
    moment = datetime.datetime.fromtimestamp(box.ended_real_ns / 1e9, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _was(box: BlackBox) -> str:
    if box.counting is None:
        return "writing its totals: they are lost, the single steps are not"
    if box.doing is None or box.doing_s is None:
        return "not told"
    where = f"in `{box.doing}` for {human_seconds(box.doing_s)} when the end was seen"
    if box.state in _BESIDE_STEPS and box.state_s is not None:
        where += f", {box.state.value} for {human_seconds(box.state_s)}"
    return f"{where}, in a step that a capture recorded" if box.capturing else where


def _event(box: BlackBox) -> str:
    if not box.events or box.last_event_s is None:
        return "none is recorded"
    last = box.events[-1]
    took = f" of {human_seconds(last.duration_s)}" if last.duration_s else ""
    return f"{last.kind}{took} in step {last.step:,}, over {human_seconds(box.last_event_s)} before"


def _counted(box: BlackBox) -> str:
    if not box.steps:
        return (
            "no step is recorded" if not box.steps_total else f"{box.steps_total:,}, not recorded"
        )
    total = (
        f"{box.steps_total:,}" if box.steps_total is not None else f"up to {box.steps[-1].step:,}"
    )
    how = " (estimated)" if box.counting is Counting.BACKWARD else ""
    median_s = statistics.median(step.duration_s for step in box.steps)
    since = f", the last one {human_seconds(box.since_step_s)} before" if box.since_step_s else ""
    return f"{total}{how}; median {human_seconds(median_s)} of the last {len(box.steps):,}{since}"


def _allocator(one: AllocatorUse) -> str:
    """What decides about an out-of-memory error: how much was in use, cached, and in pieces."""
    sizes = _sizes(
        (one.allocated_bytes, "allocated"),
        (one.reserved_bytes, "reserved"),
        (one.inactive_split_bytes, "in free pieces"),
        (one.allocated_peak_bytes, "at the peak"),
        (one.device_memory_bytes, "on the device"),
    )
    counts = [
        f"{count:,} {word}"
        for count, word in ((one.alloc_retries_total, "retries"), (one.ooms_total, "out of memory"))
        if count
    ]
    when = f"{human_seconds(one.age_s)} before the end was seen"
    return f"cuda:{one.device}  {', '.join([*sizes, *counts])}; {when}"


def _host(host: HostUse) -> str:
    own = _sizes(
        (host.rss_bytes, "resident"),
        (host.uss_bytes, "its own alone"),
        (host.shm_bytes, "in /dev/shm"),
    )
    theirs = _sizes(
        (host.workers_rss_bytes, "resident"),
        (host.workers_uss_bytes, "their own alone"),
        (host.workers_shm_bytes, "more in /dev/shm"),
    )
    workers = f"; {host.workers} workers: {', '.join(theirs)}" if host.workers and theirs else ""
    return ", ".join(own) + workers


def _sizes(*sizes: tuple[int | None, str]) -> list[str]:
    return [f"{human_bytes(size)} {word}" for size, word in sizes if size is not None]


def _table(box: BlackBox, steps: tuple[StepRecord, ...]) -> Table:
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("  step", "before the end", "took", *PHASES, ""):
        table.add_column(name, justify="right")
    last_ns = box.steps[-1].end_mono_ns
    for step in steps:
        before_s = (last_ns - step.end_mono_ns) / 1e9 + (box.since_step_s or 0)
        phases = map(human_seconds, step.phases_s) if step.phases_s else ["-"] * len(PHASES)
        marks = "captured" * step.profiled
        table.add_row(
            f"  {step.step:,}",
            human_seconds(before_s),
            human_seconds(step.duration_s),
            *phases,
            marks,
        )
    return table

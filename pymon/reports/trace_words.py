"""How a trace and a place in the code are named, for every report alike."""

from __future__ import annotations

from pathlib import Path

from pymon.base.units import human_seconds
from pymon.model.diagnosis import CodeSite
from pymon.model.trace import TraceFacts, TraceReport, WindowSource

_WINDOWS = {
    WindowSource.PROFILER_STEPS: "steps as the profiler marked them",
    WindowSource.CAPTURE: "steps as the capture counted them",
    WindowSource.OPTIMIZER_STEPS: "steps counted from the optimizer",
    WindowSource.WHOLE_TRACE: "the whole trace, no step is marked",
    WindowSource.NONE: "nothing to look at",
}


def trace_line(facts: TraceFacts) -> str:
    """`trace.json.gz: rank 3 of 8, NVIDIA A100, 6 steps of 77.5 ms (...)`."""
    words = []
    if facts.rank is not None:
        of = f" of {facts.world_size}" if facts.world_size else ""
        words.append(f"rank {facts.rank}{of}")
    words += [name for name in (facts.gpu_name, facts.host_name) if name]
    if facts.step_mean_s is not None:
        unit = "step" if facts.steps_total == 1 else "steps"
        words.append(f"{facts.steps_total} {unit} of {human_seconds(facts.step_mean_s)}")
    else:
        words.append(human_seconds(facts.window_s))
    return f"{Path(facts.path).name}: {', '.join(words)} ({_WINDOWS[facts.window_source]})"


def no_cause(report: TraceReport) -> str:
    """What stands in place of diagnoses."""
    if not any(facts.usable for facts in report.traces):
        return "Nothing can be judged: see what is missing."
    return "No known cause stands out."


def place(site: CodeSite) -> str:
    """`train.py:31 in train`; a file-less place is the annotation it stands in."""
    if not site.file:
        return f"inside `{site.function}`"
    where = f"{site.file}:{site.line}"
    return f"{where} in {site.function}" if site.function else where


def place_note(site: CodeSite) -> str:
    """What the line number is worth."""
    if not site.file:
        return "annotation"
    return "exact line" if site.exact_line else "first line of the function"

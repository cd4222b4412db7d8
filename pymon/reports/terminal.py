"""A trace report for people at a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pymon.base.units import human_seconds, ratio
from pymon.model.diagnosis import CodeSite, Diagnosis
from pymon.model.trace import TraceFacts, TraceReport
from pymon.reports.step_parts import parts_title, step_parts
from pymon.reports.trace_words import no_cause, place, place_note, trace_line

SITES_SHOWN = 5
TRACES_SHOWN = 8  # parts and problems of each; more are counted
_BAR_CELLS = 24


def render(report: TraceReport) -> RenderableType:
    """Something that `rich` prints."""
    blocks: list[RenderableType] = []
    for facts in report.traces[:TRACES_SHOWN]:
        blocks += _trace(facts)
    if len(report.traces) > TRACES_SHOWN:
        blocks.append(Text(f"... and {len(report.traces) - TRACES_SHOWN} more traces"))
    if not report.diagnoses:
        blocks.append(Text(no_cause(report), style="bold"))
    for number, diagnosis in enumerate(report.diagnoses, 1):
        blocks += _diagnosis(number, diagnosis)
    blocks += [Text(f"! {problem}", style="yellow") for problem in report.problems]
    return Group(*blocks)


def _trace(facts: TraceFacts) -> list[RenderableType]:
    table = Table(box=None, show_header=False, padding=(0, 1))
    for part in step_parts(facts):
        share = facts.share(part.time_s)
        bar = "█" * round(share * _BAR_CELLS) or "▏"
        table.add_row(part.label, human_seconds(part.time_s), str(ratio(share)), bar)
    return [
        Text(trace_line(facts), style="bold"),
        Text(parts_title(facts)),
        Padding(table, (0, 0, 0, 2)),
        *(Text(f"  ! {problem}", style="yellow") for problem in facts.problems),
        Text(),
    ]


def _diagnosis(number: int, diagnosis: Diagnosis) -> list[RenderableType]:
    evidence = Table(box=None, show_header=False, padding=(0, 1))
    for item in diagnosis.evidence:
        evidence.add_row(escape(item.text), str(item.value))
    gain = diagnosis.gain_at_most_ratio
    worth = f"; its fix saves at most {ratio(gain)} of the step" if gain is not None else ""
    blocks: list[RenderableType] = [
        Text(f"{number}. {diagnosis.title}", style="bold red"),
        Text(f"   confidence {diagnosis.confidence.value}{worth}"),
        Padding(evidence, (0, 0, 0, 2)),
        *(Padding(Text(f"→ {advice}"), (0, 0, 0, 3)) for advice in diagnosis.advice),
    ]
    if diagnosis.sites:
        blocks.append(Padding(_sites(diagnosis.sites), (0, 0, 0, 2)))
    blocks.append(Text())
    return blocks


def _sites(sites: tuple[CodeSite, ...]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for heading in ("where", "call", "calls", "time", ""):
        table.add_column(heading, overflow="fold")
    for site in sites[:SITES_SHOWN]:
        row = (place(site), site.call, f"{site.calls:,}", human_seconds(site.total_s))
        table.add_row(*map(escape, row), place_note(site))
    return table

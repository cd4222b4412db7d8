"""The summary of a run as it stands under the training's own output."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from pymon.base.units import human_bytes, human_seconds
from pymon.model.run import RunProcess, RunSummary
from pymon.model.training import PHASES

BAR_CELLS = 30
_COLOURS = ("red", "green", "blue", "yellow", "bright_black")  # one per PHASES
_LETTERS = "DFBO."  # the same without colours, in a log file
MOST_RANKS = 16  # more would push the advice off the screen; the report has them all


def render(summary: RunSummary) -> RenderableType:
    """Steps, where the time went, what happened, what to change first, where the report is."""
    lines: list[RenderableType] = [Text(f"── pymon: {summary.run_id} ──", style="bold")]
    lines.extend(_process(one) for one in summary.processes[:MOST_RANKS])
    if len(summary.processes) > MOST_RANKS:
        lines.append(Text(f"  … and {len(summary.processes) - MOST_RANKS} more processes"))
    if any(sum(one.phase_s_total) > 0 for one in summary.processes):
        lines.append(_legend())
    if not summary.processes:
        lines.append(
            Text(
                "  no training process attached: pymon must be installed in the environment that "
                "runs the training, and PyTorch must have begun to train"
            )
        )
    lines.extend(_incidents(summary))
    if summary.advice_first:
        lines.append(Text.from_markup(f"  [bold]change first[/]  {escape(summary.advice_first)}"))
    if summary.report_path:
        lines.append(Text(f"  report        {summary.report_path}"))
    return Group(*lines)


def _process(one: RunProcess) -> Text:
    text = Text(f"  {_who(one):<13} {one.steps_total:,} steps{' (estimated)' * one.estimated}")
    if one.median_step_s is not None:
        text.append(f", median {human_seconds(one.median_step_s)}")
    if one.allocated_peak_bytes is not None:
        text.append(f", at most {human_bytes(one.allocated_peak_bytes)} of tensors")
    total_s = sum(one.phase_s_total)
    if total_s > 0:
        text.append("  ")
        text.append_text(_bar(one.phase_s_total, total_s))
    if one.steps_lost_total:
        text.append(f"  {one.steps_lost_total:,} steps were not read in time")
    if one.ended not in (None, "unknown", "exited"):
        text.append(f"  ended: {one.ended}")
    return text


def _bar(phases_s: tuple[float, ...], total_s: float) -> Text:
    bar, used, upto_s = Text(), 0, 0.0
    for phase_s, colour, letter in zip(phases_s, _COLOURS, _LETTERS, strict=False):
        upto_s += phase_s
        cells = round(BAR_CELLS * upto_s / total_s) - used
        bar.append(letter * cells, style=f"{colour} reverse")
        used += cells
    shares = sorted(zip(phases_s, PHASES, strict=False), reverse=True)[:2]
    said = ", ".join(
        f"{name.replace('_', ' ')} {share_s / total_s:.0%}" for share_s, name in shares if share_s
    )
    return bar.append(f"  {said}")


def _legend() -> Text:
    names = (
        f"{letter} {name.replace('_', ' ')}" for letter, name in zip(_LETTERS, PHASES, strict=True)
    )
    return Text(f"  {'':<13} {', '.join(names)}", style="dim")


def _incidents(summary: RunSummary) -> list[Text]:
    lines = [
        Text(f"  {'incident':<13} {incident.finding.detector}: {incident.finding.summary}")
        for incident in summary.incidents[:5]
    ]
    if len(summary.incidents) > 5:
        lines.append(Text(f"  … and {len(summary.incidents) - 5} more incidents"))
    for capture in summary.captures:
        titles = "; ".join(diagnosis.title for diagnosis in capture.diagnoses[:2])
        reasons = "; ".join(sorted({one.reason for one in capture.receipts if one.reason}))
        lines.append(Text(f"  {'capture':<13} {titles or reasons or 'no cause stood out'}"))
    return lines


def _who(one: RunProcess) -> str:
    return f"pid {one.pid}" if one.rank is None else f"rank {one.rank}"

"""The report of a run: one file that needs nothing else, and runs no script."""

from __future__ import annotations

import datetime
import os
from html import escape

from pymon.base.units import human_bytes, human_seconds
from pymon.model.finding import Incident
from pymon.model.run import RunCapture, RunProcess, RunSummary
from pymon.model.training import PHASES

_COLOURS = ("#d1495b", "#2e8b57", "#30638e", "#edae49", "#9aa5b1")  # one per PHASES
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1f2933}
body{max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top}
th,td{padding:.35rem .8rem .35rem 0;border-bottom:1px solid #e4e7eb}
.first{background:#fff8e1;border-left:4px solid #edae49;padding:.6rem 1rem}
.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}
.dim{color:#52606d}svg{width:100%;height:1.1rem;display:block}
"""


def render(summary: RunSummary) -> str:
    """The whole page; what comes from the run is escaped, and nothing is loaded from anywhere."""
    parts = [
        f"<h1>{escape(summary.run_id)}</h1>",
        f'<p class="dim">{_when(summary.began_real_ns)}, {human_seconds(summary.wall_s)}</p>',
    ]
    if summary.advice_first:
        parts.append(f'<p class="first"><b>Change first:</b> {escape(summary.advice_first)}</p>')
    parts += ["<h2>Where the time went</h2>", _processes(summary.processes)]
    parts += ["<h2>Incidents</h2>", _incidents(summary.incidents)]
    folder = os.path.dirname(summary.report_path or "")
    parts += ["<h2>Captures</h2>", "".join(_capture(one, folder) for one in summary.captures)]
    if not summary.captures:
        parts.append("<p>None was taken.</p>")
    return _page(f"pymon: {summary.run_id}", "\n".join(parts))


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _processes(processes: tuple[RunProcess, ...]) -> str:
    if not processes:
        return "<p>No training process attached.</p>"
    keys = "".join(
        f'<span class="key" style="background:{colour}"></span>{name.replace("_", " ")}'
        for name, colour in zip(PHASES, _COLOURS, strict=True)
    )
    head = "<tr><th>process<th>steps<th>median<th>pymon's own cost<th style='width:45%'>time</tr>"
    rows = "".join(_process(one) for one in processes)
    return f'<table>{head}{rows}</table><p class="dim">{keys}</p>'


def _process(one: RunProcess) -> str:
    who = f"pid {one.pid}" if one.rank is None else f"rank {one.rank} (pid {one.pid})"
    steps = f"{one.steps_total:,}{' (estimated)' * one.estimated}"
    if one.steps_lost_total:
        steps += f"<br>{one.steps_lost_total:,} not read in time"
    if one.allocated_peak_bytes is not None:
        steps += f"<br>at most {human_bytes(one.allocated_peak_bytes)} of tensors"
    median = "unknown" if one.median_step_s is None else human_seconds(one.median_step_s)
    cost = "unknown" if one.own_cost_ratio is None else f"{one.own_cost_ratio:.2%}"
    ended = "still running" if one.ended is None else f"ended: {one.ended}"
    return (
        f'<tr><td>{who}<br><span class="dim">{escape(one.script)}<br>{escape(ended)}</span>'
        f"<td>{steps}<td>{median}<td>{cost}<td>{_bar(one.phase_s_total)}</tr>"
    )


def _bar(phases_s: tuple[float, ...]) -> str:
    total_s = sum(phases_s)
    if total_s <= 0:
        return '<span class="dim">no step was seen</span>'
    rectangles, x = [], 0.0
    for phase_s, colour, name in zip(phases_s, _COLOURS, PHASES, strict=False):
        width = 100 * phase_s / total_s
        said = f"{name.replace('_', ' ')}: {human_seconds(phase_s)}, {width:.0f} %"
        rectangles.append(
            f'<rect x="{x:.2f}" width="{width:.2f}" height="10" fill="{colour}">'
            f"<title>{said}</title></rect>"
        )
        x += width
    shares = ", ".join(
        f"{name.replace('_', ' ')} {phase_s / total_s:.0%}"
        for phase_s, name in sorted(zip(phases_s, PHASES, strict=False), reverse=True)
        if phase_s / total_s >= 0.005  # less would be said as 0 %
    )
    return (
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img">{"".join(rectangles)}'
        f'</svg><span class="dim">{shares}</span>'
    )


def _incidents(incidents: tuple[Incident, ...]) -> str:
    if not incidents:
        return "<p>None.</p>"
    rows = "".join(
        f"<tr><td>{_when(one.began_real_ns)}<td>{escape(one.finding.detector)}"
        f"<td>{escape(str(one.finding.subject))}<td>{escape(one.finding.summary)}"
        f"<td>{_lasted(one)}</tr>"
        for one in incidents
    )
    head = "<tr><th>began<th>detector<th>who<th>what<th>lasted</tr>"
    return f"<table>{head}{rows}</table>"


def _lasted(one: Incident) -> str:
    if one.ended_real_ns is None:
        return "until the end"
    return human_seconds((one.ended_real_ns - one.began_real_ns) / 1e9)


def _capture(one: RunCapture, folder: str) -> str:
    lines = [
        f"<li><b>{escape(found.title)}</b> ({found.confidence.value})" for found in one.diagnoses
    ]
    lines += [
        f"<li>{escape(receipt.status.value)}: {escape(receipt.reason)}"
        for receipt in one.receipts
        if receipt.reason
    ]
    link = ""
    if one.report_path:
        target = os.path.relpath(one.report_path, folder) if folder else one.report_path
        link = f' <a href="{escape(target)}">report</a>'
    said = "".join(lines) or "<li>No cause stood out."
    return f"<p>{escape(one.capture_id)}, because of {escape(one.cause)}.{link}</p><ul>{said}</ul>"


def _when(real_ns: int) -> str:
    moment = datetime.datetime.fromtimestamp(real_ns / 1e9, tz=datetime.timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")

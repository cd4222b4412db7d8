"""A trace report as one file of HTML: no script, nothing fetched, light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from pymon.base.units import human_seconds, ratio
from pymon.model.diagnosis import CodeSite, Diagnosis
from pymon.model.trace import NamedTime, TraceFacts, TraceReport
from pymon.reports.step_parts import Part, parts_title, step_parts
from pymon.reports.trace_words import no_cause, place, place_note, trace_line

TRACES_SHOWN: Final = 64
NAMES_SHOWN: Final = 10
NAME_CHARS: Final = 140

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2024;--dim:#60646c;--page:#fcfcfd;--card:#fff;--line:#e0e1e6;
--work:#2f7d5b;--comm:#7a5af5;--copy:#4c8dd9;--data:#e5484d;--sync:#f0a020;--alloc:#b06a2c;
--host:#8b8d98;--rest:#c1c4cc}
@media (prefers-color-scheme:dark){:root{--ink:#edeef0;--dim:#b0b4ba;--page:#111113;--card:#18191b;
--line:#363a3f;--host:#6f7278;--rest:#4a4d52}}
*{box-sizing:border-box}
body{overflow-wrap:anywhere;margin:0 auto;max-width:62rem;padding:2rem 1.25rem 4rem;
background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,sans-serif}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .25rem}
h2{font-size:1.2rem;margin:0 0 .5rem}
h3{font-size:1rem;margin:1.25rem 0 .4rem}p{margin:.3rem 0}.dim{color:var(--dim)}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:1.1rem 1.25rem;margin-top:1.25rem}
section.cause{border-left:5px solid var(--data)}
table{border-collapse:collapse;width:100%;font-size:.92rem}
td,th{padding:.3rem .6rem .3rem 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line);overflow-wrap:anywhere}
th{font-weight:600;color:var(--dim)}tr:last-child td{border-bottom:0}
td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}th.n{text-align:right}
code{font:.9em ui-monospace,monospace}li{margin:.35rem 0}ul,ol{padding-left:1.3rem;margin:.3rem 0}
.bar{display:flex;height:2.1rem;border-radius:6px;overflow:hidden;margin:.6rem 0}
.bar span{display:block;min-width:2px}
.key{display:inline-block;width:.8em;height:.8em;border-radius:3px;margin-right:.5em}
.warn{border-left:4px solid var(--sync);padding-left:.7rem;margin:.5rem 0}
details{margin-top:.8rem}summary{cursor:pointer;color:var(--dim)}
"""
_TONES: Final = ("work", "comm", "copy", "data", "sync", "alloc", "host", "rest")


def render(report: TraceReport, title: str) -> str:
    """One self-contained document; every name from the trace is escaped."""
    tones = "".join(f".t-{tone}{{background:var(--{tone})}}" for tone in _TONES)
    causes = [_cause(number, one) for number, one in enumerate(report.diagnoses, 1)]
    if not causes:
        causes = [f"<section><h2>{escape(no_cause(report))}</h2></section>"]
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="dim">{escape(_headline(report))}</p>',
        *map(_warning, report.problems),
        *causes,
        *map(_trace, report.traces[:TRACES_SHOWN]),
    ]
    if len(report.traces) > TRACES_SHOWN:
        body.append(f"<p>... and {len(report.traces) - TRACES_SHOWN} more traces.</p>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{tones}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _headline(report: TraceReport) -> str:
    traces = f"{len(report.traces)} trace{'s' if len(report.traces) != 1 else ''} read"
    causes = len(report.diagnoses)
    return f"pymon: {traces}, {causes or 'no'} cause{'s' if causes != 1 else ''} named"


def _warning(text: str) -> str:
    return f'<p class="warn">{escape(text)}</p>'


def _cause(number: int, diagnosis: Diagnosis) -> str:
    gain = diagnosis.gain_at_most_ratio
    worth = f", its fix saves at most <b>{ratio(gain)}</b> of the step" if gain is not None else ""
    evidence = ((escape(item.text), escape(str(item.value))) for item in diagnosis.evidence)
    advice = "".join(f"<li>{escape(text)}</li>" for text in diagnosis.advice)
    return (
        f'<section class="cause"><h2>{number}. {escape(diagnosis.title)}</h2>'
        f'<p class="dim">{escape(diagnosis.bottleneck.value)}; confidence '
        f"{escape(diagnosis.confidence.value)}{worth}</p>"
        f"<h3>What to change</h3><ol>{advice}</ol>"
        f"<h3>Evidence</h3>{_table(('measured', '=value'), evidence)}"
        f"{_sites(diagnosis.sites)}</section>"
    )


def _sites(sites: tuple[CodeSite, ...]) -> str:
    if not sites:
        return ""
    rows = (
        (
            f"<code>{escape(place(site))}</code>",
            f"<code>{escape(site.call)}</code>",
            f"{site.calls:,}",
            human_seconds(site.total_s),
            place_note(site),
        )
        for site in sites
    )
    return f"<h3>In the code</h3>{_table(('where', 'call', '=calls', '=time', ''), rows)}"


def _trace(facts: TraceFacts) -> str:
    parts = step_parts(facts)
    keys = (
        (
            f'<span class="key t-{part.tone}"></span>{escape(part.label)}',
            human_seconds(part.time_s),
            str(ratio(facts.share(part.time_s))),
        )
        for part in parts
    )
    return (
        f"<section><h2>{escape(trace_line(facts))}</h2>{''.join(map(_warning, facts.problems))}"
        f"<h3>{escape(parts_title(facts))}</h3>{_bar(facts, parts)}"
        f"{_table(('', '=time', '=share'), keys)}"
        f"{_names('Operators by their own time', facts.top_operators)}"
        f"{_names('Kernels and copies by time', facts.top_kernels)}</section>"
    )


def _bar(facts: TraceFacts, parts: Iterable[Part]) -> str:
    pieces = "".join(
        f'<span class="t-{part.tone}" style="width:{100 * facts.share(part.time_s):.3f}%" '
        f'title="{escape(part.label)} {ratio(facts.share(part.time_s))}"></span>'
        for part in parts
    )
    return f'<div class="bar" role="img" aria-label="{escape(parts_title(facts))}">{pieces}</div>'


def _names(heading: str, named: tuple[NamedTime, ...]) -> str:
    if not named:
        return ""
    rows = (
        (
            f"<code>{escape(one.name[:NAME_CHARS])}</code>",
            f"{one.calls_total:,}",
            human_seconds(one.time_s),
        )
        for one in named[:NAMES_SHOWN]
    )
    table = _table(("name", "=calls", "=time"), rows)
    return f"<details><summary>{escape(heading)}</summary>{table}</details>"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Cells are HTML already; a heading that starts with `=` makes a column of numbers."""
    marks = [' class="n"' if heading.startswith("=") else "" for heading in headings]
    head = "".join(f"<th{m}>{h.lstrip('=')}</th>" for m, h in zip(marks, headings, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{m}>{c}</td>" for m, c in zip(marks, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

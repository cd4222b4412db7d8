"""Renders a snapshot in Prometheus' text format 0.0.4, once a tick at most; its scrapes are served these bytes.

Lines are made again only for the parts of the page whose readings have changed, and of a line then only the value: its
name and labels are kept too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from pymon.exporters.cuda_samples import about_cuda
from pymon.exporters.gpu_samples import GpuSamples
from pymon.exporters.host_samples import about_host
from pymon.exporters.job_samples import about_jobs
from pymon.exporters.probe_samples import about_probe
from pymon.exporters.run_samples import about_goodput, about_run, peak_of
from pymon.exporters.sample import Part, Sample
from pymon.model.catalog import CATALOG
from pymon.model.distribution import Histogram
from pymon.model.finding import Incident
from pymon.model.gpu import GpuSection
from pymon.model.snapshot import Snapshot, State
from pymon.model.training import PHASES, Shed, TrainingProcess, TrainingSection

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABEL_MAX_CHARS = 128  # the catalogue's names fit; what others name must not fill the database
# Unless the configuration says otherwise. A host gives some 300 series, a GPU 90, a rank that trains on it 110: this is
# a half more, and a thousand ranks that somebody attaches are left out all the same.
SERIES_MAX, SERIES_MAX_PER_GPU = 1000, 250
_PREFIXES_MAX = 20_000  # kept lines; pids and runs come and go
_Block = dict[str, dict[str, str]]  # family -> name with labels -> line
_HEADS = {m.name: f"# HELP {m.name} {m.help}\n# TYPE {m.name} {m.kind}" for m in CATALOG}
_LABELS = {m.name: m.labels for m in CATALOG} | {
    f"{m.name}{part}": (*m.labels, "le") if part == "_bucket" else m.labels
    for m in CATALOG
    if m.kind == "histogram"
    for part in ("_bucket", "_sum", "_count")
}


@dataclass(frozen=True, slots=True)
class DaemonStats:
    """What the daemon tells of itself; None is absent."""

    version: str
    cpu_s_total: float
    rss_bytes: int | None
    ticks_skipped_total: int
    incidents_total: dict[str, int]  # by detector
    captures_total: dict[tuple[str, str], int]  # by kind and status
    journal_dropped_total: int = 0
    connections_refused_total: int = 0
    pages_refused_total: int = 0


@dataclass(slots=True)
class PrometheusRenderer:
    """`series_max` bounds the page (0: by the GPUs); what is beyond is dropped from the catalogue's end and counted.

    `disabled` families are left out. Of two samples whose labels look alike once they are printable the first stays.
    """

    series_max: int = 0
    gpus: GpuSamples = field(default_factory=GpuSamples)
    disabled: frozenset[str] = frozenset()
    series_dropped_total: int = 0
    _prefixes: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    _blocks: dict[Hashable, tuple[object, _Block]] = field(default_factory=dict)

    def render(
        self, snapshot: Snapshot, incidents: tuple[Incident, ...], stats: DaemonStats
    ) -> bytes:
        """The whole page."""
        if len(self._prefixes) > _PREFIXES_MAX:
            self._prefixes.clear()
        before, self._blocks = self._blocks, {}
        families: dict[str, list[dict[str, str]]] = {}
        for key, source, samples in self._parts(snapshot, incidents, stats):
            block = before.get(key)
            if block is None or block[0] != source:
                block = source, self._block(samples)
            self._blocks[key] = block
            for family, rows in block[1].items():
                families.setdefault(family, []).append(rows)
        return self._page(families, self.series_max or _series_max(snapshot))

    def _page(self, families: dict[str, list[dict[str, str]]], left: int) -> bytes:
        """In the catalogue's order, `left` series of it."""
        lines: list[str] = []
        for metric in CATALOG:
            if metric.name not in families or metric.name in self.disabled:
                continue
            rows = _united(families[metric.name])
            kept = list(rows.values())
            if metric.kind == "histogram":
                kept, left = self._whole(kept, left)
            else:
                self.series_dropped_total += max(0, len(kept) - left)
                kept = kept[:left]
                left -= len(kept)
            if kept:
                lines.append(_HEADS[metric.name])
                lines += kept
        return ("\n".join(lines) + "\n").encode()

    def _whole(self, histograms: list[str], left: int) -> tuple[list[str], int]:
        """A histogram without some of its buckets would be wrong: it is kept whole or not at all."""
        kept = []
        for lines in histograms:
            size = lines.count("\n") + 1
            if size > left:
                self.series_dropped_total += size
            else:
                left -= size
                kept.append(lines)
        return kept, left

    def _parts(
        self, snapshot: Snapshot, incidents: tuple[Incident, ...], stats: DaemonStats
    ) -> Iterator[Part]:
        doubles, dropped = _doubles(snapshot), self.series_dropped_total
        yield "daemon", (stats, doubles), _about_daemon(stats, doubles)
        yield "dropped", dropped, (("pymon_series_dropped_total", (), dropped),)
        yield from _about_collectors(snapshot)
        yield "incidents", incidents, _about_incidents(incidents)
        if training := snapshot.get(TrainingSection):
            for process in sorted(training.processes, key=_living_first):
                yield ("process", process.attach_id), process, _about_process(process, snapshot)
                peak = peak_of(process, snapshot)
                run = about_run(process, _labels(process), peak)
                yield ("run", process.attach_id), (process, peak), run
        yield from about_goodput(snapshot)
        yield from about_jobs(snapshot)
        yield from about_host(snapshot)
        yield from self.gpus.of(snapshot)

    def _block(self, samples: Iterable[Sample]) -> _Block:
        """The lines of a part, by family and by name with labels."""
        block: _Block = {}
        for family, values, value in samples:
            prefix = self._prefix(family, values)
            if isinstance(value, Histogram):
                line = "\n".join(self._buckets(family, values, value))
            else:
                line = f"{prefix} {_number(value)}"
            block.setdefault(family, {}).setdefault(prefix, line)
        return block

    def _buckets(self, family: str, values: tuple[str, ...], told: Histogram) -> Iterator[str]:
        total, bound_s = 0, told.first_bound_s
        for count in told.counts[:-1]:
            total += count
            yield f"{self._prefix(f'{family}_bucket', (*values, _number(bound_s)))} {total}"
            bound_s *= 2
        total += told.counts[-1]
        yield f"{self._prefix(f'{family}_bucket', (*values, '+Inf'))} {total}"
        yield f"{self._prefix(f'{family}_sum', values)} {_number(told.sum_s)}"
        yield f"{self._prefix(f'{family}_count', values)} {total}"

    def _prefix(self, name: str, values: tuple[str, ...]) -> str:
        key = (name, values)
        if (prefix := self._prefixes.get(key)) is None:
            prefix = self._prefixes[key] = _series(name, _LABELS[name], values)
        return prefix


def _series_max(snapshot: Snapshot) -> int:
    section = snapshot.get(GpuSection)
    return SERIES_MAX + SERIES_MAX_PER_GPU * (len(section.gpus) if section else 0)


def _united(parts: list[dict[str, str]]) -> dict[str, str]:
    """The first of two lines whose labels look alike once they are printable."""
    if len(parts) == 1:
        return parts[0]
    rows: dict[str, str] = {}
    for part in parts:
        if rows.keys().isdisjoint(part):
            rows.update(part)
        else:
            rows = {**part, **rows}
    return rows


def _doubles(snapshot: Snapshot) -> str:
    section = snapshot.get(GpuSection)
    return "nvml" if section is not None and section.driver.double else ""


def _about_daemon(stats: DaemonStats, doubles: str) -> Iterator[Sample]:
    yield "pymon_build_info", (stats.version, doubles), 1
    yield "pymon_daemon_cpu_seconds_total", (), stats.cpu_s_total
    if stats.rss_bytes is not None:
        yield "pymon_daemon_resident_memory_bytes", (), stats.rss_bytes
    yield "pymon_daemon_ticks_skipped_total", (), stats.ticks_skipped_total
    yield "pymon_journal_dropped_total", (), stats.journal_dropped_total
    yield "pymon_connections_refused_total", (), stats.connections_refused_total
    yield "pymon_pages_refused_total", (), stats.pages_refused_total
    for detector, total in sorted(stats.incidents_total.items()):
        yield "pymon_incidents_total", (detector,), total
    for (kind, status), total in sorted(stats.captures_total.items()):
        yield "pymon_captures_total", (kind, status), total


def _about_collectors(snapshot: Snapshot) -> Iterator[Part]:
    states = [(outcome.collector, outcome.state) for outcome in snapshot.outcomes]
    yield "collectors", states, _states(states)
    for outcome in snapshot.outcomes:
        took = ("pymon_collector_duration_seconds", (outcome.collector,), outcome.took_s)
        yield ("collector", outcome.collector), outcome.took_s, (took,)


def _states(of_collectors: list[tuple[str, State]]) -> Iterator[Sample]:
    for collector, now in of_collectors:
        for state in State:
            yield "pymon_collector_up", (collector, state.value), now is state


def _about_incidents(incidents: tuple[Incident, ...]) -> Iterator[Sample]:
    for incident in incidents:
        subject = incident.finding.subject
        labels = (_rank(subject.rank), subject.job_id, str(subject.pid))
        yield "pymon_incident", (incident.finding.detector, *labels), 1


def _labels(process: TrainingProcess) -> tuple[str, ...]:
    return (_rank(process.rank), process.job_id, str(process.pid))


def _living_first(process: TrainingProcess) -> tuple[bool, int]:
    """And of the others the newest: after an exec, or with pids of containers, several have the same labels."""
    ended = process.ended is not None
    return ended, -process.attached_real_ns if ended else 0


def _rank(rank: int | None) -> str:
    return "" if rank is None else str(rank)


def _about_process(process: TrainingProcess, snapshot: Snapshot) -> Iterator[Sample]:
    labels = _labels(process)
    more = (_rank(process.local_rank), _rank(process.world_size), process.script, process.run_id)
    yield "pymon_process_info", (*labels, *more, process.counting.value), 1
    yield "pymon_process_up", labels, process.ended is None
    yield "pymon_steps_total", labels, process.steps_total
    yield "pymon_steps_lost_total", labels, process.steps_lost_total
    yield "pymon_backwards_total", labels, process.backwards_total
    yield "pymon_optimizer_calls_total", labels, process.optimizer_calls_total
    yield "pymon_batches_total", labels, process.batches_total
    yield "pymon_probe_cost_seconds_total", labels, process.own_cost_s_total
    yield "pymon_probe_shed", labels, list(Shed).index(process.shed)
    yield "pymon_probe_sheds_total", labels, process.sheds_total
    if process.overhead_ratio is not None:
        yield "pymon_probe_overhead_ratio", labels, process.overhead_ratio
    if process.open_step_age_s is not None:
        ended_s = snapshot.taken_real_ns / 1e9 - process.open_step_age_s
        yield "pymon_last_step_timestamp_seconds", labels, ended_s
    for phase, spent_s in zip(PHASES, process.phase_s_total, strict=True):
        yield "pymon_phase_seconds_total", (phase, *labels), spent_s
    for name, spent_s in process.user_phase_s_total:
        yield "pymon_user_phase_seconds_total", (name, *labels), spent_s
    yield "pymon_step_seconds", labels, process.step_histogram
    yield from about_cuda(process, labels)
    yield from about_probe(process, labels)


def _series(name: str, labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not labels:
        return name
    pairs = ",".join(
        f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True)
    )
    return f"{name}{{{pairs}}}"


def _escaped(value: str) -> str:
    """Printable, bounded, and quoted as the text format wants it: a value comes from somebody's environment."""
    plain = "".join(char if char.isprintable() else "?" for char in value[:LABEL_MAX_CHARS])
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    text = repr(value) if isinstance(value, float) else repr(int(value))
    return text.removesuffix(".0")

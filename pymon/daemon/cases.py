"""A case: one capture, the reading of it, and its report, beside the ticks."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from pymon.base.clock import Clock
from pymon.base.errors import PymonError
from pymon.capture import counter_file
from pymon.capture.manager import CaptureManager
from pymon.daemon.ledger import Ledger
from pymon.daemon.runner import guarded
from pymon.diagnosis import diagnose
from pymon.exporters.journal import Journal
from pymon.model.capture import CaptureKind, CaptureReceipt, CaptureRequest, ReceiptStatus
from pymon.model.counters import CounterBurst
from pymon.model.diagnosis import Diagnosis
from pymon.model.finding import Finding, Incident
from pymon.model.run import RunCapture
from pymon.reports import html, json

log = logging.getLogger(__name__)

# A second incident of a process within this time is told by the capture of the first one: detectors see one cause
# from several sides within seconds of each other.
SAME_CAUSE_S = 60.0
# A job that slows down does so in all its ranks at once; the four that are worst show the cause as well as all would.
RANKS_MAX = 4


@dataclass(frozen=True, slots=True)
class _Reading:
    """What reading a capture gave."""

    diagnoses: tuple[Diagnosis, ...] = ()
    report: Path | None = None
    problem: str = ""
    counters: tuple[CounterBurst, ...] = ()


@dataclass(slots=True)
class Cases:
    """Each case ends in receipts, which the journal and the ledger keep with what the reading said."""

    clock: Clock
    captures: CaptureManager
    ledger: Ledger
    journal: Journal
    _tasks: set[asyncio.Task[RunCapture]] = field(default_factory=set)
    _captured_s: dict[str, float] = field(default_factory=dict)  # by attach id

    def start(
        self, pids: tuple[int, ...], steps: int, cause: str, incident_id: str | None = None
    ) -> asyncio.Task[RunCapture]:
        """A capture with its diagnosis, as a task that never raises."""
        return self._start(pids, steps, cause, incident_id)

    def start_counters(self, pids: tuple[int, ...], burst_s: float) -> asyncio.Task[RunCapture]:
        """A burst of hardware counters, likewise. Only people ask for one: it locks the clocks of their GPUs."""
        return self._start(pids, 0, "manual", None, CaptureKind.COUNTERS, burst_s)

    def _start(
        self,
        pids: tuple[int, ...],
        steps: int,
        cause: str,
        incident_id: str | None,
        kind: CaptureKind = CaptureKind.TORCH,
        burst_s: float = 0.0,
    ) -> asyncio.Task[RunCapture]:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        now_ns = self.clock.real_ns()
        request = CaptureRequest(name, pids, steps, cause, now_ns, incident_id, kind, burst_s)
        task = asyncio.get_running_loop().create_task(self._run(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def under_way(self) -> bool:
        """Whether a capture, or the reading of one, is not over yet."""
        return bool(self._tasks)

    def open_for(self, began: Sequence[Incident], steps: int) -> None:
        """One capture for all that began in this tick, of the processes that are worst."""
        now_s = time.monotonic()
        self._captured_s = {
            who: at_s for who, at_s in self._captured_s.items() if now_s - at_s < SAME_CAUSE_S
        }
        fresh = [i for i in began if i.finding.subject.attach_id not in self._captured_s]
        if not fresh:
            return
        fresh.sort(key=lambda incident: _excess(incident.finding), reverse=True)
        self._captured_s |= {incident.finding.subject.attach_id: now_s for incident in fresh}
        pids = tuple(dict.fromkeys(incident.finding.subject.pid for incident in fresh))[:RANKS_MAX]
        worst = fresh[0].finding
        cause = f"{worst.detector}:{worst.subject.attach_id}"
        self.start(pids, steps, cause, fresh[0].incident_id)

    async def _run(self, request: CaptureRequest) -> RunCapture:
        log.info("capture %s begins (%s)", request.capture_id, request.cause)
        receipts = await self.captures.capture(request)
        for receipt in receipts:
            log.info("capture %s of pid %d: %s", request.capture_id, receipt.pid, _told(receipt))
            self.journal.add("receipt", request.capture_id, asdict(receipt))
        folder = self.captures.captures_dir / request.capture_id
        reading = _Reading()
        if any(receipt.status is ReceiptStatus.WRITTEN for receipt in receipts):
            what, work = f"reading capture {folder.name}", partial(_read, folder)
            if request.kind is CaptureKind.COUNTERS:
                work = partial(_read_counters, folder, receipts)
            broken = _Reading(problem="it could not be read; the daemon's log says why")
            reading = await asyncio.to_thread(guarded, what, work, broken)
        if reading.problem:
            self.journal.add("problem", request.capture_id, reading.problem)
        for diagnosis in reading.diagnoses:
            log.warning("capture %s: %s", request.capture_id, diagnosis.title)
            self.journal.add("diagnosis", request.capture_id, asdict(diagnosis))
        for burst in reading.counters:
            self.journal.add("counters", request.capture_id, asdict(burst))
        cause = request.cause.split(":")[0]
        capture = RunCapture(
            capture_id=request.capture_id,
            cause=cause,
            folder=str(folder),
            receipts=receipts,
            diagnoses=reading.diagnoses,
            report_path=str(reading.report) if reading.report else None,
            problem=reading.problem,
            counters=reading.counters,
        )
        self.ledger.add_capture(capture)
        return capture


def _excess(finding: Finding) -> float:
    """How far beyond its limit."""
    return finding.observed.value / finding.limit.value if finding.limit.value else 0.0


def _told(receipt: CaptureReceipt) -> str:
    return f"{receipt.status.value}{f': {receipt.reason}' if receipt.reason else ''}"


def _read(folder: Path) -> _Reading:
    """In a worker thread: the capture's diagnosis, and its reports beside it; or why it cannot be read."""
    try:
        report = diagnose([folder])
        write_whole(folder / "diagnosis.json", json.render(report))
        write_whole(folder / "report.html", html.render(report, f"Capture {folder.name}"))
    except (PymonError, OSError) as err:
        log.warning("capture %s cannot be read: %s", folder.name, err)
        return _Reading(problem=str(err))
    return _Reading(report.diagnoses, folder / "report.html")


def _read_counters(folder: Path, receipts: Sequence[CaptureReceipt]) -> _Reading:
    """Likewise: the means of each burst."""
    files = [(receipt.pid, file.name) for receipt in receipts for file in receipt.files]
    try:
        return _Reading(
            counters=tuple(counter_file.read(folder / name, pid) for pid, name in files)
        )
    except PymonError as err:
        log.warning("capture %s cannot be read: %s", folder.name, err)
        return _Reading(problem=str(err))


def write_whole(path: Path, content: str | bytes) -> None:
    """Under a temporary name first, so that nobody reads half of it. Raises OSError, and leaves nothing then."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise

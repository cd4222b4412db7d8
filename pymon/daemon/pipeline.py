"""The order of the flow: collect, remember, judge, capture, diagnose, tell."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from pymon.base.clock import Clock
from pymon.base.errors import PymonError
from pymon.capture.manager import CaptureManager
from pymon.daemon.incidents import Incidents
from pymon.daemon.ledger import Ledger, without_steps
from pymon.daemon.runner import Runner, guarded
from pymon.detectors import Detector
from pymon.diagnosis import diagnose
from pymon.exporters.journal import Journal
from pymon.model.capture import CaptureReceipt, CaptureRequest, ReceiptStatus
from pymon.model.diagnosis import Diagnosis
from pymon.model.finding import Finding, Incident
from pymon.model.run import RunCapture
from pymon.model.snapshot import Snapshot
from pymon.reports import html, json

log = logging.getLogger(__name__)

# A second incident of a process within this time is told by the capture of the first one: detectors see one cause
# from several sides within seconds of each other.
SAME_CAUSE_S = 60.0
_NOTHING: tuple[tuple[Diagnosis, ...], Path | None] = ((), None)


@dataclass(slots=True)
class Pipeline:
    """`publish` gets each snapshot with the open incidents, for the exporters."""

    clock: Clock
    runner: Runner
    detectors: Sequence[Detector]
    incidents: Incidents
    captures: CaptureManager
    ledger: Ledger
    journal: Journal
    publish: Callable[[Snapshot, tuple[Incident, ...]], None]
    automatic: bool = True
    steps: int = 3
    newest: Snapshot | None = None
    _one_tick: asyncio.Lock = field(default_factory=asyncio.Lock)
    _history: deque[Snapshot] = field(default_factory=deque)
    _tasks: set[asyncio.Task[RunCapture]] = field(default_factory=set)
    _captured_s: dict[str, float] = field(default_factory=dict)  # by attach id

    async def tick(self, everything: bool = False) -> None:
        """One round. Captures go on beside it: a tick waits for none. `everything`: also what is not due yet."""
        async with self._one_tick:
            await self._tick(everything)

    async def _tick(self, everything: bool) -> None:
        outcomes = await asyncio.to_thread(self.runner.tick, everything)
        snapshot = Snapshot(self.clock.monotonic_ns(), self.clock.real_ns(), outcomes)
        self.newest = snapshot
        self.ledger.note(snapshot)
        self._remember(without_steps(snapshot))
        began, ended = self.incidents.update(self._findings())
        self.ledger.update((*self.incidents.open, *ended))
        for incident in ended:
            log.info("incident %s ended", incident.incident_id)
            self.journal.add("incident_end", incident.incident_id, asdict(incident))
        for incident in began:
            self._begin(incident)
        guarded("publishing", lambda: self.publish(snapshot, self.incidents.open), None)

    def start_capture(
        self, pids: tuple[int, ...], steps: int, cause: str, incident_id: str | None = None
    ) -> asyncio.Task[RunCapture]:
        """A capture with its diagnosis, as a task that never raises."""
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        request = CaptureRequest(name, pids, steps, cause, self.clock.real_ns(), incident_id)
        task = asyncio.get_running_loop().create_task(self._capture(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def under_way(self) -> bool:
        """Whether a capture, or the reading of one, is not over yet."""
        return bool(self._tasks)

    def _remember(self, snapshot: Snapshot) -> None:
        self._history.append(snapshot)
        window_ns = max((detector.window_s for detector in self.detectors), default=0.0) * 1e9
        while snapshot.taken_mono_ns - self._history[0].taken_mono_ns > window_ns:
            self._history.popleft()

    def _findings(self) -> list[Finding]:
        recent = tuple(self._history)
        findings: list[Finding] = []
        for detector in self.detectors:
            findings += guarded(detector.name, partial(_judge, detector, recent), [])
        return findings

    def _begin(self, incident: Incident) -> None:
        finding = incident.finding
        log.warning("%s: %s: %s", finding.detector, finding.subject, finding.summary)
        self.ledger.begin(incident)
        self.journal.add("incident", incident.incident_id, asdict(incident))
        now_s, who = time.monotonic(), finding.subject.attach_id
        if self.automatic and now_s - self._captured_s.get(who, -1e9) > SAME_CAUSE_S:
            self._captured_s[who] = now_s
            cause = f"{finding.detector}:{who}"
            self.start_capture((finding.subject.pid,), self.steps, cause, incident.incident_id)

    async def _capture(self, request: CaptureRequest) -> RunCapture:
        log.info("capture %s begins (%s)", request.capture_id, request.cause)
        receipts = await self.captures.capture(request)
        for receipt in receipts:
            log.info("capture %s of pid %d: %s", request.capture_id, receipt.pid, _told(receipt))
            self.journal.add("receipt", request.capture_id, asdict(receipt))
        folder = self.captures.captures_dir / request.capture_id
        diagnoses, report = _NOTHING
        if any(receipt.status is ReceiptStatus.WRITTEN for receipt in receipts):
            what, work = f"reading capture {folder.name}", partial(_read, folder)
            diagnoses, report = await asyncio.to_thread(guarded, what, work, _NOTHING)
        for diagnosis in diagnoses:
            log.warning("capture %s: %s", request.capture_id, diagnosis.title)
            self.journal.add("diagnosis", request.capture_id, asdict(diagnosis))
        cause = request.cause.split(":")[0]
        shown = str(report) if report else None
        capture = RunCapture(request.capture_id, cause, str(folder), receipts, diagnoses, shown)
        self.ledger.add_capture(capture)
        return capture


def _judge(detector: Detector, recent: Sequence[Snapshot]) -> list[Finding]:
    return list(detector.detect(recent))


def _told(receipt: CaptureReceipt) -> str:
    return f"{receipt.status.value}{f': {receipt.reason}' if receipt.reason else ''}"


def _read(folder: Path) -> tuple[tuple[Diagnosis, ...], Path | None]:
    """In a worker thread: the capture's diagnosis, and its reports beside it; nothing where it cannot be read."""
    try:
        report = diagnose([folder])
        write_whole(folder / "diagnosis.json", json.render(report))
        write_whole(folder / "report.html", html.render(report, f"Capture {folder.name}"))
    except (PymonError, OSError) as err:
        log.warning("capture %s cannot be read: %s", folder.name, err)
        return _NOTHING
    return report.diagnoses, folder / "report.html"


def write_whole(path: Path, text: str) -> None:
    """Under a temporary name first, so that nobody reads half of it. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)

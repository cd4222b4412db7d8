"""The order of the flow: collect, remember, judge, open cases, tell; a case captures and diagnoses (`cases`)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from pymon.base.clock import Clock
from pymon.daemon.cases import Cases
from pymon.daemon.incidents import Incidents
from pymon.daemon.ledger import Ledger, for_history
from pymon.daemon.runner import Runner, guarded
from pymon.detectors import Detector
from pymon.exporters.journal import Journal
from pymon.model.finding import Finding, Incident
from pymon.model.snapshot import Snapshot

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pipeline:
    """`publish` gets each snapshot with the open incidents, for the exporters."""

    clock: Clock
    runner: Runner
    detectors: Sequence[Detector]
    incidents: Incidents
    cases: Cases
    ledger: Ledger
    journal: Journal
    publish: Callable[[Snapshot, tuple[Incident, ...]], None]
    automatic: bool = True
    steps: int = 3
    newest: Snapshot | None = None
    _one_tick: asyncio.Lock = field(default_factory=asyncio.Lock)
    _history: deque[Snapshot] = field(default_factory=deque)

    async def tick(self, everything: bool = False) -> None:
        """One round. Captures go on beside it: a tick waits for none. `everything`: also what is not due yet."""
        async with self._one_tick:
            await self._tick(everything)

    async def _tick(self, everything: bool) -> None:
        outcomes = await self.runner.tick(everything)
        snapshot = Snapshot(self.clock.monotonic_ns(), self.clock.real_ns(), outcomes)
        self.newest = snapshot
        self.ledger.note(snapshot)
        self._remember(snapshot)
        began, ended = self.incidents.update(self._findings())
        self.ledger.update((*self.incidents.open, *ended))
        for incident in ended:
            log.info("incident %s ended", incident.incident_id)
            self.journal.add("incident_end", incident.incident_id, asdict(incident))
        for incident in began:
            self._begin(incident)
        if self.automatic:
            self.cases.open_for(began, self.steps)
        guarded("publishing", lambda: self.publish(snapshot, self.incidents.open), None)

    def _remember(self, snapshot: Snapshot) -> None:
        kinds = tuple({kind for detector in self.detectors for kind in detector.reads})
        self._history.append(for_history(snapshot, kinds))
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


def _judge(detector: Detector, recent: Sequence[Snapshot]) -> list[Finding]:
    return list(detector.detect(recent))

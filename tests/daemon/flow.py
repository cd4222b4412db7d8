"""A pipeline whose neighbours are doubles: what a collector gives and a detector says is set by the test."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

from pymon.base.units import seconds
from pymon.daemon.cases import Cases
from pymon.daemon.incidents import Incidents
from pymon.daemon.ledger import Ledger
from pymon.daemon.pipeline import Pipeline
from pymon.model.capture import CaptureKind, CaptureReceipt, ReceiptStatus
from pymon.model.distribution import Histogram
from pymon.model.finding import Finding, Subject
from pymon.model.snapshot import Outcome, State
from pymon.model.training import StepRecord, TrainingSection
from tests.clock_double import ClockDouble
from tests.detectors.histories import PROCESS


def process(**facts):
    """A process of run `r1`; `steps` are the durations of its new steps."""
    steps = facts.pop("steps", ())
    records = tuple(
        StepRecord(number, 0, duration_s, (0.0,) * 5, 1, 1, 1, False, False)
        for number, duration_s in enumerate(steps, 1)
    )
    one = replace(PROCESS, run_id="r1", new_steps=records, steps_total=len(steps))
    return replace(one, step_histogram=Histogram(1e-6, (), sum(steps)), **facts)


def finding(attach_id=PROCESS.attach_id, pid=PROCESS.pid):
    """A step that is too slow."""
    subject = Subject(attach_id, pid, 0, "77")
    return Finding("step_slow", subject, seconds(0.2), seconds(0.1), "a step takes 0.2 s")


def receipt(capture_id, pid=PROCESS.pid, status=ReceiptStatus.WRITTEN, reason=""):
    """How a capture of one process ended."""
    return CaptureReceipt(capture_id, CaptureKind.TORCH, pid, 0, status, reason)


@dataclass
class RunnerDouble:
    """Gives these processes, a second after the ones before."""

    clock: ClockDouble
    processes: tuple = ()

    async def tick(self, everything=False):
        self.clock.now_s += 1.0
        return (Outcome("processes", State.OK, 0.0, TrainingSection(tuple(self.processes))),)


@dataclass
class DetectorDouble:
    name: str = "step_slow"
    window_s: float = 3.0
    reads: tuple = (TrainingSection,)
    says: object = ()
    seen: list = field(default_factory=list)

    def detect(self, recent):
        self.seen.append(len(recent))
        if isinstance(self.says, Exception):
            raise self.says
        yield from self.says


@dataclass
class CapturesDouble:
    """Ends each request with a receipt of this status; a written one leaves a folder."""

    captures_dir: Path
    status: ReceiptStatus = ReceiptStatus.WRITTEN
    requests: list = field(default_factory=list)
    kineto: object = None
    under_way: str = ""

    async def capture(self, request):
        self.requests.append(request)
        if self.status is ReceiptStatus.WRITTEN:
            (self.captures_dir / request.capture_id).mkdir(parents=True)
        pids = request.pids or (PROCESS.pid,)
        return tuple(receipt(request.capture_id, pid, self.status) for pid in pids)


@dataclass
class JournalDouble:
    rows: list = field(default_factory=list)

    def add(self, kind, name, body):
        self.rows.append((kind, name, body))

    def kinds(self):
        return [kind for kind, _, _ in self.rows]


def pipeline(tmp_path, **changes):
    """A pipeline over one process and one detector that says nothing."""
    clock = ClockDouble(1000.0)
    parts = {
        "clock": clock,
        "runner": RunnerDouble(clock, (process(),)),
        "detectors": [DetectorDouble()],
        "incidents": Incidents(clock),
        "ledger": Ledger(clock),
        "journal": JournalDouble(),
        "publish": lambda snapshot, incidents: None,
    }
    captures = changes.pop("captures", CapturesDouble(tmp_path / "captures"))
    parts["cases"] = Cases(clock, captures, parts["ledger"], parts["journal"])
    return Pipeline(**(parts | changes))


def ticks(flow, count=1):
    """So many rounds, and the captures that they began."""

    async def main():
        for _ in range(count):
            await flow.tick()
        await asyncio.gather(*flow.cases._tasks)

    asyncio.run(main())

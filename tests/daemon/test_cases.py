import asyncio
from dataclasses import replace

import pytest

from pymon.base.errors import InputError
from pymon.base.units import ratio, seconds
from pymon.daemon import cases as module
from pymon.model.capture import CaptureFile, ReceiptStatus
from pymon.model.counters import CounterBurst
from pymon.model.diagnosis import Bottleneck, Confidence, Diagnosis, Evidence
from pymon.model.finding import Finding
from pymon.model.trace import TraceReport
from tests.daemon.flow import CapturesDouble, DetectorDouble, finding, pipeline, ticks

DIAGNOSIS = Diagnosis(
    rule="input_starved",
    bottleneck=Bottleneck.DATA,
    title="training waits for its input",
    confidence=Confidence.HIGH,
    evidence=(Evidence("of the step is data wait", ratio(0.6)),),
    advice=("Set num_workers=4.",),
)


@pytest.fixture
def diagnosed(monkeypatch):
    monkeypatch.setattr(module, "diagnose", lambda paths: TraceReport((), (DIAGNOSIS,), ()))


def test_a_finding_ends_in_a_diagnosis_and_its_report(tmp_path, diagnosed):
    flow = pipeline(tmp_path, detectors=[DetectorDouble(says=[finding()])])
    ticks(flow, 3)

    assert flow.journal.kinds() == ["incident", "receipt", "diagnosis"]
    (request,) = flow.cases.captures.requests
    assert (request.pids, request.steps) == ((finding().subject.pid,), 3)
    assert request.incident_id == flow.incidents.open[0].incident_id
    folder = flow.cases.captures.captures_dir / request.capture_id
    assert sorted(file.name for file in folder.iterdir()) == ["diagnosis.json", "report.html"]
    assert "waits for its input" in (folder / "report.html").read_text()
    summary = flow.ledger.summary("r1", None)
    assert summary.captures[0].cause == "step_slow"
    assert summary.advice_first == "training waits for its input. Set num_workers=4."
    assert not flow.cases.under_way


def test_one_cause_that_two_detectors_see_is_captured_once(tmp_path, diagnosed):
    says = [finding()]
    other = [Finding("data_starved", *_rest(finding()))]
    flow = pipeline(tmp_path, detectors=[DetectorDouble(says=says), DetectorDouble(says=other)])
    ticks(flow)

    assert flow.journal.kinds().count("incident") == 2
    assert len(flow.cases.captures.requests) == 1


def test_a_job_that_slows_down_in_all_ranks_makes_one_capture_of_the_worst(tmp_path, diagnosed):
    says = [
        replace(finding(f"{rank:032x}", 100 + rank), observed=seconds(0.2 + rank))
        for rank in range(8)
    ]
    flow = pipeline(tmp_path, detectors=[DetectorDouble(says=says)])
    ticks(flow, 2)

    (request,) = flow.cases.captures.requests
    assert request.pids == (107, 106, 105, 104)
    assert len(flow.incidents.open) == 8


def _rest(one):
    return one.subject, one.observed, one.limit, one.summary


def test_a_refused_capture_is_kept_with_its_receipt_and_not_read(tmp_path):
    captures = CapturesDouble(tmp_path, ReceiptStatus.REFUSED)
    flow = pipeline(tmp_path, captures=captures, detectors=[DetectorDouble(says=[finding()])])
    ticks(flow)

    assert flow.ledger.captures_total == {("torch", "refused"): 1}
    assert flow.ledger.captures[0].report_path is None


@pytest.mark.parametrize("error", [InputError("no trace"), KeyError("a bug"), OSError("full")])
def test_a_capture_that_cannot_be_read_is_kept_without_a_report(tmp_path, monkeypatch, error):
    def broken(paths):
        raise error

    monkeypatch.setattr(module, "diagnose", broken)
    flow = pipeline(tmp_path, detectors=[DetectorDouble(says=[finding()])])
    ticks(flow)

    (capture,) = flow.ledger.captures
    assert (capture.diagnoses, capture.report_path) == ((), None)
    assert capture.problem in (str(error), "it could not be read; the daemon's log says why")
    assert flow.journal.rows[-1] == ("problem", capture.capture_id, capture.problem)


def test_a_burst_of_counters_is_read_and_not_diagnosed(tmp_path, monkeypatch):
    flow = pipeline(tmp_path)
    burst = CounterBurst(100, "NVIDIA H200", "GH100", 2.0, 4000, 0, 0, sm_active_ratio=0.5)
    monkeypatch.setattr(module.counter_file, "read", lambda path, pid: burst)
    original = flow.cases.captures.capture

    async def capture(request):
        (receipt,) = await original(request)
        return (replace(receipt, files=(CaptureFile("pid100.counters.json", 1, "counters"),)),)

    flow.cases.captures.capture = capture

    async def main():
        return await flow.cases.start_counters((100,), 2.0)

    ended = asyncio.run(main())
    assert (ended.counters, ended.diagnoses, ended.report_path) == ((burst,), (), None)
    assert flow.journal.kinds() == ["receipt", "counters"]

import asyncio

import pytest

from pymon.base.errors import InputError
from pymon.base.units import ratio
from pymon.daemon import pipeline as module
from pymon.model.capture import ReceiptStatus
from pymon.model.diagnosis import Bottleneck, Confidence, Diagnosis, Evidence
from pymon.model.trace import TraceReport
from tests.daemon.flow import CapturesDouble, DetectorDouble, finding, pipeline, process

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


def ticks(flow, count=1):
    """So many rounds, and the captures that they began."""

    async def main():
        for _ in range(count):
            await flow.tick()
        await asyncio.gather(*flow._tasks)

    asyncio.run(main())


def test_a_finding_ends_in_a_diagnosis_and_its_report(tmp_path, diagnosed):
    flow = pipeline(tmp_path, detectors=[DetectorDouble(says=[finding()])])
    ticks(flow, 3)

    assert flow.journal.kinds() == ["incident", "receipt", "diagnosis"]
    (request,) = flow.captures.requests
    assert (request.pids, request.steps) == ((finding().subject.pid,), 3)
    assert request.incident_id == flow.incidents.open[0].incident_id
    folder = flow.captures.captures_dir / request.capture_id
    assert sorted(file.name for file in folder.iterdir()) == ["diagnosis.json", "report.html"]
    assert "waits for its input" in (folder / "report.html").read_text()
    summary = flow.ledger.summary("r1", None)
    assert summary.captures[0].cause == "step_slow"
    assert summary.advice_first == "training waits for its input. Set num_workers=4."
    assert not flow.under_way


def test_an_incident_that_is_over_is_told(tmp_path):
    detector = DetectorDouble(says=[finding()])
    flow = pipeline(tmp_path, detectors=[detector], automatic=False)
    ticks(flow)
    detector.says = []
    ticks(flow, 12)

    assert flow.journal.kinds() == ["incident", "incident_end"]
    assert flow.incidents.open == ()
    assert flow.captures.requests == []


def test_one_cause_that_two_detectors_see_is_captured_once(tmp_path, diagnosed):
    says = [finding()]
    other = [module.Finding("data_starved", *_rest(finding()))]
    flow = pipeline(tmp_path, detectors=[DetectorDouble(says=says), DetectorDouble(says=other)])
    ticks(flow)

    assert flow.journal.kinds().count("incident") == 2
    assert len(flow.captures.requests) == 1


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

    assert (flow.ledger.captures[0].diagnoses, flow.ledger.captures[0].report_path) == ((), None)


def test_a_detector_with_a_bug_costs_its_own_findings_only(tmp_path, caplog):
    broken, healthy = DetectorDouble("broken", says=ZeroDivisionError("oops")), DetectorDouble()
    healthy.says = [finding()]
    flow = pipeline(tmp_path, detectors=[broken, healthy], automatic=False)
    ticks(flow, 3)

    assert len(flow.incidents.open) == 1
    assert caplog.text.count("broken: ZeroDivisionError: oops") == 1  # not once a second


def test_detectors_see_the_time_they_asked_for_and_no_single_steps(tmp_path):
    detector = DetectorDouble(window_s=3.0)
    flow = pipeline(tmp_path, detectors=[detector])
    flow.runner.processes = (process(steps=(0.1, 0.2)),)
    ticks(flow, 6)

    assert detector.seen == [1, 2, 3, 4, 4, 4]
    assert flow._history[-1].outcomes[0].section.processes[0].new_steps == ()


def test_each_tick_is_published_with_the_open_incidents(tmp_path):
    published = []
    flow = pipeline(
        tmp_path,
        detectors=[DetectorDouble(says=[finding()])],
        automatic=False,
        publish=lambda snapshot, incidents: published.append((snapshot, incidents)),
    )
    ticks(flow, 2)

    assert [len(incidents) for _, incidents in published] == [1, 1]
    assert published[-1][0] is flow.newest

"""Summaries of made-up runs, as doubles for what a daemon tells."""

from __future__ import annotations

import dataclasses

from pymon.base.units import ratio, seconds
from pymon.model.capture import CaptureFile, CaptureKind, CaptureReceipt, ReceiptStatus
from pymon.model.diagnosis import Bottleneck, Confidence, Diagnosis, Evidence
from pymon.model.finding import Finding, Incident, Subject
from pymon.model.run import RunCapture, RunProcess, RunSummary

PROCESS = RunProcess(
    rank=0,
    pid=4711,
    script="train.py",
    steps_total=1234,
    estimated=False,
    steps_lost_total=0,
    median_step_s=0.0312,
    phase_s_total=(40.0, 20.0, 30.0, 5.0, 5.0),
    own_cost_ratio=0.0004,
    ended="exited",
)
INCIDENT = Incident(
    incident_id="i1",
    finding=Finding(
        detector="step_slow",
        subject=Subject("ab12", 4711, 0, ""),
        observed=seconds(0.09),
        limit=seconds(0.05),
        summary="a step takes 90.0 ms, and took 31.2 ms before",
    ),
    began_real_ns=1_800_000_000_000_000_000,
    ended_real_ns=1_800_000_010_000_000_000,
)
CAPTURE = RunCapture(
    capture_id="c1",
    cause="step_slow",
    folder="/state/captures/c1",
    receipts=(
        CaptureReceipt(
            capture_id="c1",
            kind=CaptureKind.TORCH,
            pid=4711,
            rank=0,
            status=ReceiptStatus.WRITTEN,
            files=(CaptureFile("rank0-pid4711.trace.json.gz", 1000, "trace"),),
        ),
    ),
    diagnoses=(
        Diagnosis(
            rule="input_starved",
            bottleneck=Bottleneck.DATA,
            title="training waits for its input",
            confidence=Confidence.HIGH,
            evidence=(Evidence("of the step is data wait", ratio(0.6)),),
            advice=("Set num_workers=4.",),
        ),
    ),
    report_path="/state/captures/c1/report.html",
)
SUMMARY = RunSummary(
    run_id="train-20270115-080000-ab12",
    began_real_ns=1_800_000_000_000_000_000,
    wall_s=125.0,
    processes=(PROCESS,),
    incidents=(INCIDENT,),
    captures=(CAPTURE,),
    advice_first="Set num_workers=4.",
    report_path="/state/runs/r1/report.html",
)
EMPTY = dataclasses.replace(
    SUMMARY, processes=(), incidents=(), captures=(), advice_first=None, report_path=None
)

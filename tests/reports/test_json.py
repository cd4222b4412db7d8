"""The report for machines: plain JSON, absent is null."""

from __future__ import annotations

import json

from pymon.reports.json import render
from tests.reports.doubles import gpu_time, report


def test_facts_and_diagnoses_with_units() -> None:
    told = json.loads(render(report(gpu_time())))
    assert told["version"] == 1
    assert told["traces"][0]["gpu"]["idle_by_data_s"] == 0.3
    found = told["diagnoses"][0]
    assert found["bottleneck"] == "data"
    assert found["evidence"][0]["value"] == {"value": 0.3, "unit": "ratio"}


def test_absent_is_null() -> None:
    assert json.loads(render(report(None)))["traces"][0]["gpu"] is None

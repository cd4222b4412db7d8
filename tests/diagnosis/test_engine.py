"""The verdicts: which cause is named for which trace, in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from pymon.base.errors import InputError
from pymon.diagnosis import diagnose
from pymon.diagnosis.engine import judge
from tests.diagnosis.doubles import (
    REAL,
    item_waits_gpu,
    loader_bound_gpu,
    needs_native,
    needs_real_traces,
    write,
)

pytestmark = needs_native


def test_several_ranks_give_one_diagnosis_with_a_count(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"rank{n}.json", loader_bound_gpu()) for n in range(3)]
    report = diagnose(paths)
    assert [d.rule for d in report.diagnoses] == ["input_starved"]
    assert report.diagnoses[0].evidence[-1].value.value == 3


def test_the_larger_gain_comes_first(tmp_path: Path) -> None:
    report = diagnose(
        [
            write(tmp_path / "rank0.json", loader_bound_gpu()),
            write(tmp_path / "rank1.json", item_waits_gpu()),
        ]
    )
    assert [d.rule for d in report.diagnoses] == ["input_starved", "implicit_sync"]
    assert judge([]) == ()


LABELLED = [
    ("kineto/*num_workers_0*", {"input_starved"}),
    ("kineto/*num_workers_4*", set()),
    ("tracelens/*owlv2*", {"input_starved"}),
    ("hta/*trace_diff_control*", {"implicit_sync"}),
    ("hta/*negative_queue_length*", {"implicit_sync"}),
    ("amg/*", {"implicit_sync"}),
    ("hta/*df_index_resolver*", set()),
    ("tracelens/*mi300_resnet*", set()),
    ("hta/*nccl_parser_config*", set()),
    ("hta/*cpu_only*", set()),
]


@needs_real_traces
@pytest.mark.parametrize(("pattern", "rules"), LABELLED)
def test_labelled_real_traces(pattern: str, rules: set[str]) -> None:
    report = diagnose([next(REAL.glob(pattern))])
    assert {d.rule for d in report.diagnoses} == rules


def _real_files() -> list[str]:
    kept = ("hta", "kineto", "tracelens", "amg", "dlrm8", "malformed", "memory")
    return [str(p.relative_to(REAL)) for kind in kept for p in sorted((REAL / kind).glob("*"))]


@needs_real_traces
@pytest.mark.parametrize("name", _real_files())
def test_every_real_file_gives_an_answer_or_one_line(name: str) -> None:
    refusal = ""
    events_total = 0
    try:
        events_total = diagnose([REAL / name]).traces[0].events_total
    except InputError as err:
        refusal = str(err)
    assert bool(refusal) != bool(events_total)
    assert "\n" not in refusal
    if refusal:
        assert name.startswith(("malformed", "memory"))
    if name.startswith("memory"):
        assert refusal

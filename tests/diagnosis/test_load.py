"""Whatever is wrong with a file, there is an answer: what was learnt, or one line why not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pymon.base.errors import InputError
from pymon.diagnosis import diagnose
from pymon.diagnosis.facts import trace_facts
from pymon.diagnosis.load import call_sites_beside, find_traces, printable
from tests.diagnosis.doubles import (
    event,
    loader_bound_gpu,
    needs_native,
    scalar_reads_cpu,
    step,
    text,
    write,
)

pytestmark = needs_native


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"this is not a trace at all\n", "not a profiler trace"),
        (b'{"a": 1}', "not a profiler trace"),
        (b'{"traceEvents": []}', "without events"),
        (b'{"distributedInfo": {"rank": 3, "world_size": 8}, "traceEvents": [', "rank 3"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\x1f\x8bgarbage that is no gzip", "nothing could be learnt"),
        (b"\x80\x04\x95 a pickle", "not a profiler trace"),
        (b"[" * 100_000, "unreadable|without events|cut short"),
        (b"\x00" * 1000, "not a profiler trace"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=says) as refused:
        diagnose([path])
    assert "\n" not in str(refused.value)


def test_missing_file_and_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        diagnose([tmp_path / "nowhere.json"])
    with pytest.raises(InputError, match="no trace in this folder"):
        diagnose([tmp_path])


def test_a_folder_gives_its_traces_and_one_bad_file_costs_only_itself(tmp_path: Path) -> None:
    write(tmp_path / "rank0-pid1.trace.json.gz", loader_bound_gpu())
    write(tmp_path / "rank1-pid2.trace.json", loader_bound_gpu())
    (tmp_path / "rank2-pid3.trace.json").write_bytes(b"")
    (tmp_path / "manifest.json").write_text("{}")
    assert len(find_traces(tmp_path)) == 3
    report = diagnose([tmp_path])
    assert [facts.rank for facts in report.traces] == [0, 1]
    assert len(report.problems) == 1
    assert "rank2" in report.problems[0]
    assert report.diagnoses[0].evidence[-1].value.value == 2


def test_cut_at_every_byte_never_crashes(tmp_path: Path) -> None:
    whole = text(loader_bound_gpu()[:5], distributedInfo={"rank": 2})
    path = tmp_path / "cut.json"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            facts = trace_facts(path)
        except InputError:
            continue
        if size < whole.rindex(b"]"):
            assert facts.cut_short
        assert facts.events_total <= 5


def test_a_gzip_cut_short_keeps_what_came_before(tmp_path: Path) -> None:
    packed = gzip.compress(text(scalar_reads_cpu(400)))
    path = tmp_path / "x.json.gz"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    facts = trace_facts(path)
    assert facts.cut_short
    assert 10 < facts.events_total < 1604
    assert "gzip" in facts.problems[0]


def test_gzip_members_one_after_the_other(tmp_path: Path) -> None:
    whole = text(loader_bound_gpu())
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(whole[:200]) + gzip.compress(whole[200:]) + b"\0" * 100)
    facts = trace_facts(path)
    assert facts.events_total == 15
    assert not facts.cut_short


@pytest.mark.parametrize(
    ("broken", "kept"),
    [
        (b'"name": "a "quoted" name"', 2),
        (b'"name": "C:\\dir\\file"', 3),
        (b'"name": "line\nbreak \x01 and \xff\xfe"', 3),
        (b'"name": "x", "extra": NaN', 3),
        (b'"name": "x", "args": {"correlation": 99999999999999999999999}', 3),
        (b'"name": "x" "y": 1', 2),
    ],
)
def test_a_broken_event_costs_only_itself(tmp_path: Path, broken: bytes, kept: int) -> None:
    events = [step(0, 1000, 900), event("VICTIM", "cpu_op", 1100, 5), step(1, 2000, 900)]
    path = tmp_path / "x.json"
    path.write_bytes(text(events).replace(b'"name": "VICTIM"', broken))
    facts = trace_facts(path)
    assert facts.events_total == kept
    assert facts.steps_total == 2
    assert not facts.cut_short
    assert any("broken text" in problem for problem in facts.problems) == (kept < 3)


def test_array_root_rank_in_the_tail_and_string_threads(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(json.dumps(loader_bound_gpu()).encode())
    assert trace_facts(path).steps_total == 3
    tail = text(loader_bound_gpu())[:-1] + b', "distributedInfo": {"rank": 5, "world_size": 6}}'
    path.write_bytes(tail.replace(b'"tid": 7', b'"tid": "7"'))
    facts = trace_facts(path)
    assert (facts.rank, facts.world_size, facts.steps_total) == (5, 6, 3)


def test_rank_from_the_name_and_none_where_nobody_knows(tmp_path: Path) -> None:
    assert trace_facts(write(tmp_path / "rank-12.x.json", loader_bound_gpu())).rank == 12
    assert trace_facts(write(tmp_path / "x.json", loader_bound_gpu())).rank is None


def test_gpu_events_that_were_lost_are_unknown_not_idle(tmp_path: Path) -> None:
    events = [e for e in loader_bound_gpu() if e["cat"] != "kernel"]
    report = diagnose([write(tmp_path / "x.json", events)])
    assert report.traces[0].gpu is None
    assert not report.traces[0].usable
    assert report.diagnoses == ()


def test_call_sites_beside_the_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0-pid9.trace.json.gz", scalar_reads_cpu())
    beside = tmp_path / "rank0-pid9.call_sites.json"
    site = {
        "call": "Tensor.item",
        "file": "/home/me/train.py",
        "line": 31,
        "function": "train\x1b[31m",
        "calls": 100,
        "total_ns": 900_000,
        "max_ns": 20_000,
    }
    beside.write_text(json.dumps({"version": 1, "steps": 2, "window_s": 0.002, "sites": [site]}))
    sites, wrong = call_sites_beside(path)
    assert sites is not None
    assert wrong == ""
    assert sites.sites[0].line == 31
    assert sites.sites[0].exact_line
    assert "\x1b" not in sites.sites[0].function
    beside.write_text("{not json")
    assert trace_facts(path).call_sites is None
    assert any("call_sites" in problem for problem in trace_facts(path).problems)


def test_names_lose_their_control_characters() -> None:
    assert printable("a\x1b[2Jb") == "a\ufffd[2Jb"
    assert printable("größe") == "größe"

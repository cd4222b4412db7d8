"""The sums: on small traces by hand, on real ones against independent answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pymon.diagnosis.facts import trace_facts
from pymon.model.trace import TraceFacts, WindowSource
from tests.diagnosis.doubles import (
    REAL,
    event,
    item_waits_gpu,
    kernel,
    launch,
    loader_bound_gpu,
    needs_native,
    needs_real_traces,
    scalar_reads_cpu,
    step,
    write,
)

pytestmark = needs_native


def test_gpu_time_and_idle_by_cause(tmp_path: Path) -> None:
    facts = trace_facts(write(tmp_path / "x.json", loader_bound_gpu()))
    gpu = facts.gpu
    assert gpu is not None
    assert facts.window_s == pytest.approx(3e-3)
    assert gpu.compute_s == pytest.approx(1.5e-3)
    assert gpu.idle_s == pytest.approx(1.5e-3)
    assert gpu.idle_by_data_s == pytest.approx(1.2e-3)
    assert gpu.idle_by_host_s == pytest.approx(0.3e-3)
    assert gpu.idle_by_sync_s == 0
    assert gpu.launch_to_start_p50_s == pytest.approx(5e-6)
    assert facts.loader is not None
    assert facts.loader.worker_processes is False


def test_communication_counts_only_where_nothing_else_runs(tmp_path: Path) -> None:
    events = [
        step(0, 1000, 100),
        launch(1, 1001),
        kernel(1, 1010, 40),
        kernel(2, 1030, 50, "ncclDevKernel_AllReduce_Sum_f32"),
    ]
    gpu = trace_facts(write(tmp_path / "x.json", events)).gpu
    assert gpu is not None
    assert gpu.communication_s == pytest.approx(50e-6)
    assert gpu.exposed_communication_s == pytest.approx(30e-6)


def test_sync_idle_is_at_most_what_the_call_lasted(tmp_path: Path) -> None:
    facts = trace_facts(write(tmp_path / "x.json", item_waits_gpu()))
    assert facts.gpu is not None
    assert facts.reads.calls_total == 3
    assert facts.reads.with_copy_total == 3
    assert facts.waited_s == pytest.approx(3 * 510e-6)
    assert 0 < facts.gpu.sync_recoverable_s <= facts.waited_s


def test_nested_scalar_reads_count_once_and_have_a_site(tmp_path: Path) -> None:
    facts = trace_facts(write(tmp_path / "x.json", scalar_reads_cpu(50, stacks=True)))
    assert facts.gpu is None
    assert facts.reads.calls_total == 100
    assert facts.reads.time_s == pytest.approx(400e-6)
    site = facts.sites[0]
    assert (site.file, site.line, site.function) == ("train.py", 12, "accuracy")
    assert not site.exact_line
    assert site.calls == 100


def test_a_range_that_is_over_holds_nothing(tmp_path: Path) -> None:
    """A step may open inside Optimizer.step and outlast it."""
    events = [
        event("Optimizer.step#SGD.step", "user_annotation", 1000, 20),
        step(1, 1010, 500),
        event("aten::item", "cpu_op", 1200, 5),
        event("evaluate", "user_annotation", 1300, 50),
        event("aten::item", "cpu_op", 1310, 5),
    ]
    facts = trace_facts(write(tmp_path / "x.json", events))
    assert facts.reads.calls_total == 2
    assert [site.function for site in facts.sites] == ["evaluate"]


def test_windows_without_profiler_steps(tmp_path: Path) -> None:
    ops = [event("aten::mm", "cpu_op", 1000 + 100 * n, 50) for n in range(10)]
    facts = trace_facts(write(tmp_path / "a.json", ops))
    assert facts.window_source is WindowSource.WHOLE_TRACE
    assert facts.steps_total == 0
    assert facts.step_mean_s is None
    optimizer = [
        event("Optimizer.step#SGD.step", "user_annotation", 1200 + 300 * n, 50) for n in range(3)
    ]
    facts = trace_facts(write(tmp_path / "b.json", [*ops, *optimizer]))
    assert facts.window_source is WindowSource.OPTIMIZER_STEPS
    assert facts.steps_total == 2
    assert facts.window_s == pytest.approx(600e-6)


def test_gpu_copies_of_step_marks_are_not_steps(tmp_path: Path) -> None:
    events = loader_bound_gpu()
    events.append(event("ProfilerStep#9", "gpu_user_annotation", 100, 9000, "stream 7"))
    assert trace_facts(write(tmp_path / "x.json", events)).steps_total == 3


@pytest.mark.parametrize("dur", [-5, 1e18, float("nan")])
def test_impossible_times_are_left_out_and_said(tmp_path: Path, dur: float) -> None:
    events = [*loader_bound_gpu(), kernel(99, 1500, dur)]
    facts = trace_facts(write(tmp_path / "x.json", events))
    assert facts.gpu is not None
    assert facts.gpu.compute_s == pytest.approx(1.5e-3)
    assert any("possible time" in problem for problem in facts.problems)


def _references() -> list[tuple[str, str]]:
    found = []
    for path in sorted((REAL / "reference").glob("*.exact.json")):
        found += [(path.name, rank) for rank in json.loads(path.read_bytes())["ranks"]]
    return found


@needs_real_traces
@pytest.mark.parametrize(("name", "rank"), _references())
def test_real_traces_against_an_independent_answer(name: str, rank: str) -> None:
    reference = json.loads((REAL / "reference" / name).read_bytes())
    source = REAL / reference["source"]
    if source.is_dir():
        source = next(source.glob(f"worker{rank}_*"))
    facts = trace_facts(source)
    told = reference["ranks"][rank]
    whole_us = all(isinstance(told["step_window"][k], int) for k in ("idle", "busy"))
    _compare(facts, told["step_window"], exact=whole_us)
    wait_us = facts.loader.wait_s * 1e6 if facts.loader else 0.0
    assert wait_us == pytest.approx(told["host"]["dataloader"]["union_us"], abs=0.01)
    assert facts.reads.time_s * 1e6 == pytest.approx(told["host"]["item_like"]["union_us"], abs=0.1)


def _compare(facts: TraceFacts, told: dict[str, float], exact: bool) -> None:
    gpu = facts.gpu
    assert gpu is not None
    mine = {
        "window": facts.window_s,
        "busy": gpu.busy_s,
        "idle": gpu.idle_s,
        "compute": gpu.compute_s,
        "comm": gpu.communication_s,
        "memory": gpu.copy_s,
        "exposed_comm": gpu.exposed_communication_s,
        "exposed_mem": gpu.exposed_copy_s,
    }
    for key, value_s in mine.items():
        if exact:
            assert round(value_s * 1e9) == told[key] * 1000, key
        else:
            assert value_s * 1e6 == pytest.approx(told[key], rel=1e-3), key

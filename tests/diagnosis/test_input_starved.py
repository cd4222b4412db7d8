"""Starved of input: when it is said, when not, and how many workers it asks for."""

from __future__ import annotations

from pathlib import Path

from pymon.diagnosis.facts import trace_facts
from pymon.diagnosis.rules.input_starved import InputStarved
from pymon.model.diagnosis import Confidence, Diagnosis
from tests.diagnosis.doubles import (
    LOADER,
    event,
    kernel,
    launch,
    loader_bound_gpu,
    needs_native,
    step,
    write,
)

pytestmark = needs_native
MULTI = LOADER.replace("Single", "Multi")


def _judge(tmp_path: Path, events: list[dict[str, object]]) -> Diagnosis | None:
    return InputStarved().judge(trace_facts(write(tmp_path / "x.json", events)))


def test_gpu_idle_under_the_loader(tmp_path: Path) -> None:
    found = _judge(tmp_path, loader_bound_gpu())
    assert found is not None
    assert found.confidence is Confidence.HIGH
    assert found.gain_at_most_ratio is not None
    assert abs(found.gain_at_most_ratio - 0.4) < 1e-6


def test_categories_of_old_traces(tmp_path: Path) -> None:
    found = _judge(tmp_path, loader_bound_gpu(cat="Operator"))
    assert found is not None


def test_a_busy_gpu_hides_the_loader(tmp_path: Path) -> None:
    events = loader_bound_gpu()
    events += [launch(50, 990), kernel(50, 1000, 3000)]
    assert _judge(tmp_path, events) is None


def test_cpu_training_computes_its_workers(tmp_path: Path) -> None:
    """30 ms to load, 10 ms for the rest: three workers keep up, a fourth takes up jitter."""
    events = []
    for n in range(3):
        ts = 40_000.0 * n + 1000
        events += [step(n, ts, 40_000), event(LOADER, "user_annotation", ts, 30_000)]
        events.append(event("aten::mm", "cpu_op", ts + 30_100, 9_000))
    found = _judge(tmp_path, events)
    assert found is not None
    assert "num_workers=4" in found.advice[0]
    assert "GPU" not in found.title


def test_tiny_batches_get_no_workers(tmp_path: Path) -> None:
    events = [e for e in loader_bound_gpu() if e["cat"] in ("user_annotation", "cpu_op")]
    found = _judge(tmp_path, events)
    assert found is not None
    assert not any("num_workers" in advice for advice in found.advice)


def test_with_workers_the_advice_is_throughput(tmp_path: Path) -> None:
    found = _judge(tmp_path, loader_bound_gpu(name=MULTI))
    assert found is not None
    assert "1.7 times" in found.advice[0]


def test_far_more_than_workers_can_do(tmp_path: Path) -> None:
    events = [step(0, 1000, 101_000), event(LOADER, "user_annotation", 1000, 100_000)]
    found = _judge(tmp_path, events)
    assert found is not None
    assert "cheaper first" in found.advice[0]


def test_quiet_below_the_limit(tmp_path: Path) -> None:
    events = [step(0, 1000, 1000), event(LOADER, "user_annotation", 1000, 90)]
    assert _judge(tmp_path, events) is None


def test_one_slow_batch_is_no_starvation(tmp_path: Path) -> None:
    events = [step(0, 1000, 10_000), event(LOADER, "user_annotation", 1000, 3_000)]
    events += [event(LOADER, "user_annotation", 5000 + 100 * n, 10) for n in range(3)]
    assert _judge(tmp_path, events) is None

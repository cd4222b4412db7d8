"""Implicit synchronisation: a wait on a GPU, a measured cost on a CPU, and where it stands."""

from __future__ import annotations

import json
from pathlib import Path

from pymon.diagnosis.facts import trace_facts
from pymon.diagnosis.rules.implicit_sync import ImplicitSync
from pymon.model.diagnosis import Diagnosis
from tests.diagnosis.doubles import (
    event,
    item_waits_gpu,
    loader_bound_gpu,
    needs_native,
    scalar_reads_cpu,
    write,
)

pytestmark = needs_native


def _judge(path: Path) -> Diagnosis | None:
    return ImplicitSync().judge(trace_facts(path))


def test_item_on_a_gpu_is_a_wait(tmp_path: Path) -> None:
    found = _judge(write(tmp_path / "x.json", item_waits_gpu()))
    assert found is not None
    assert "waits for the GPU" in found.title
    assert found.gain_at_most_ratio is not None
    assert found.gain_at_most_ratio < 0.5


def test_reads_of_cpu_tensors_in_a_gpu_run_are_harmless(tmp_path: Path) -> None:
    events = loader_bound_gpu()
    events += [event("aten::item", "cpu_op", 1500 + 10 * n, 5) for n in range(40)]
    assert _judge(write(tmp_path / "x.json", events)) is None


def test_on_a_cpu_it_is_a_cost_and_never_a_gpu_wait(tmp_path: Path) -> None:
    found = _judge(write(tmp_path / "x.json", scalar_reads_cpu(50, stacks=True)))
    assert found is not None
    assert "50 times a step" in found.title
    said = found.title + " ".join(item.text for item in found.evidence)
    assert "GPU" not in said
    assert found.sites[0].file == "train.py"
    assert any("first line" in advice for advice in found.advice)


def test_the_probes_own_call_sites_win(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0-pid1.trace.json", scalar_reads_cpu(50, stacks=True))
    sites = [
        {"call": "Tensor.item", "file": "/a/train.py", "line": n, "function": "f", "calls": 50,
         "total_ns": 1000 * n, "max_ns": 9}
        for n in (41, 42)
    ]  # fmt: skip
    (tmp_path / "rank0-pid1.call_sites.json").write_text(
        json.dumps({"version": 1, "steps": 2, "window_s": 0.002, "sites": sites})
    )
    found = _judge(path)
    assert found is not None
    assert (found.sites[0].line, found.sites[0].exact_line) == (42, True)
    assert any("/a/train.py:42" in advice for advice in found.advice)


def test_a_few_reads_are_no_finding(tmp_path: Path) -> None:
    assert _judge(write(tmp_path / "x.json", scalar_reads_cpu(2))) is None

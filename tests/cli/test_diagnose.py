"""`pymon diagnose` as a user types it: what is printed, and the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.diagnosis.doubles import loader_bound_gpu, needs_native, scalar_reads_cpu, text, write
from tests.waiting import PATIENCE_S

pytestmark = needs_native


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pymon", "diagnose", *map(str, arguments)],
        capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip


def test_a_good_trace(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = _run(write(tmp_path / "x.json.gz", loader_bound_gpu()), "--html", page)
    assert done.returncode == 0, done.stderr
    assert "Starved of input" in done.stdout
    assert "<!doctype html>" in page.read_text()


def test_json_is_json(tmp_path: Path) -> None:
    done = _run(write(tmp_path / "x.json", scalar_reads_cpu()), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["diagnoses"][0]["rule"] == "implicit_sync"


@pytest.mark.parametrize("defect", ["missing", "empty", "no trace", "cut", "gpu lost"])
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, defect: str) -> None:
    path = tmp_path / "x.json"
    whole = text(loader_bound_gpu())
    if defect == "gpu lost":
        write(path, [e for e in loader_bound_gpu() if e["cat"] != "kernel"])
    elif defect != "missing":
        path.write_bytes({"empty": b"", "no trace": b"hello", "cut": whole[:-300]}[defect])
    done = _run(path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "x.json" in done.stderr
    if defect in ("cut", "gpu lost"):
        assert "learnt" in done.stderr
        assert "3 steps" in done.stdout


def test_help_has_examples() -> None:
    done = _run("--help")
    assert done.returncode == 0
    assert "pymon diagnose trace.json.gz" in done.stdout

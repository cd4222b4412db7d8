"""Each test of this folder runs a scenario on the GPU (marked `gpu`, skipped without one) and on its double.

Where PYMON_GPU_RESULTS names a file, each result is appended to it as one line of JSON, at once: a run that is cut off
keeps what it had (bench/gpu/check.py).
"""

import functools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pymon import native
from tests.native.build import ROOT, gpu_doubles, missing

DOUBLE = "tests.gpu.torch_double"
LIMIT_S = 100


@functools.cache
def why_no_gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        return f"torch.cuda.is_available() is False (torch {torch.__version__})"
    return ""


@functools.cache
def second_client():
    library = ROOT / "build" / "second_client.so"
    library.parent.mkdir(exist_ok=True)
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC"]
    source = ROOT / "tests" / "gpu" / "second_client.cpp"
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    return library


@pytest.fixture(params=[pytest.param("gpu", marks=pytest.mark.gpu), "double"])
def scenario(request):
    """scenario(NAME, **environment) -> what it said, its exit code and stderr."""
    if native.probe()[0] is None:
        pytest.skip(native.probe()[1])
    on_gpu = request.param == "gpu"
    if on_gpu and why_no_gpu():
        pytest.skip(why_no_gpu())
    if not on_gpu and (why_not := missing()):
        pytest.skip(why_not)

    def run(name, **env):
        if not on_gpu:
            env |= {"LD_LIBRARY_PATH": str(gpu_doubles()), "PYMON_GPU_CHECK_DOUBLE": DOUBLE}
        return run_scenario(name, {**os.environ, "PYTHONPATH": str(ROOT), **env})

    run.on_gpu = on_gpu
    return run


def run_scenario(name, env):
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.gpu.scenarios", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=env,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        pytest.fail(
            f"{name}: no end within {LIMIT_S} s; stdout {out[-500:]!r}, stderr {errors[-1000:]!r}"
        )
    lines = [line for line in out.splitlines() if line.startswith("{")]
    assert lines, f"{name} ended with {process.returncode} and said nothing: {errors[-2000:]}"
    said = json.loads(lines[-1])
    if "not_possible" in said:
        pytest.fail(f"{name}: {said['not_possible']}")
    return SimpleNamespace(said=said, code=process.returncode, errors=errors)


@pytest.fixture
def note(scenario, record_property):
    """Keeps figures for gpu-results.json; those of the double are none."""

    def keep(**figures):
        for name, value in figures.items():
            if scenario.on_gpu:
                record_property(name, value)

    return keep


def pytest_runtest_logreport(report):
    results = os.environ.get("PYMON_GPU_RESULTS")
    if results is None or (report.when != "call" and report.outcome == "passed"):
        return
    name = re.sub(r"\[gpu-?(.*)\]$", r"_\1", report.nodeid.split("::")[-1]).rstrip("_")
    why = ""
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        why = report.longrepr[2].removeprefix("Skipped: ")
    elif report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message if crash is not None else str(report.longrepr)
    line = {
        "test": name.removeprefix("test_"),
        "outcome": report.outcome,
        "why": " ".join(why.split())[:400],
    }
    line["figures"] = dict(report.user_properties)
    with Path(results).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")

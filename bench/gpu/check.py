"""Everything that needs a GPU, within a budget of time: builds, tests marked `gpu`, and all measurements of bench/gpu.

    make gpu-check [PY=python3]
    python -m bench.gpu.check [--budget-s 540] [--only PART,PART] [--json build/gpu-results.json]
    python -m bench.gpu.check --write-docs          docs/gpu-results.md from an earlier run's JSON

Needs no network: g++ and the headers of this Python, setuptools, pybind11, pytest and pytest-timeout (pytest-xdist
makes it quicker) beside a CUDA build of torch. Each part runs in a process of its own with a limit; one that fails,
hangs or crashes costs one line of the JSON, which is written anew after each part. Its keys are flat: `part_*` are
"ok", "skipped: why" or "failed: why", `test_*` "passed" or likewise, the rest are figures. What the parts printed lies
beside it, in gpu-results.log. A larger budget goes into the long watch at the end (`--budget-s 1800`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu import part, report

ROOT = part.ROOT
PARENT_S = 4.0  # what is kept of the budget for the table
SKIPPED = 3  # exit code of a part that cannot run here


@dataclass(frozen=True)
class Part:
    """`seconds` is what it measures for (None: all that is left), start-up aside; `limit_s` when it is killed."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    seconds: float | None = 0.0
    suffix: str = ""  # of its keys


def measurement(module: str, *options: str) -> tuple[str, ...]:
    return ("-m", f"bench.gpu.{module}", *options)


ALONE = "agrees or trainers"  # tests that compare times, so nothing may run beside them
TESTS = ("-m", "pytest", "tests/gpu", "-m", "gpu", "-q", "-p", "no:cacheprovider")
BUILD = "build"
# In this order: what could not be known without a GPU first, the long watch last.
PARTS = (
    Part("environment", measurement("environment"), 90),
    Part(BUILD, ("setup.py", "-q", "build_ext", "--inplace", "-j", "4"), 180),
    Part("tests_alone", (*TESTS, "-k", ALONE), 150),
    Part("tests", (*TESTS, "-k", f"not ({ALONE})"), 240),
    Part("launches", measurement("launches"), 80, 18),
    Part("steps_gpt", measurement("steps", "gpt"), 100, 32),
    Part("steps_resnet", measurement("steps", "resnet"), 100, 32),
    Part("events", measurement("events"), 50, 6),
    Part("without", measurement("steps", "gpt", "resnet", "--without"), 60, 10),
    Part("without_again", measurement("steps", "gpt", "resnet", "--without"), 60, 10, "_again"),
    Part("launches_sync", measurement("launches", "--layers", "cupti,sync"), 60, 9),
    Part("flood", measurement("replays", "--rate", "0", "--name", "flood"), 80, 34),
    Part("replays", measurement("replays"), 0, None),
)
START_S = 15.0  # of a process with torch and CUDA, on a machine that has just been started
LEAST_S = 10.0  # of the long watch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget-s", type=float, default=540.0)
    parser.add_argument("--only", help=f"of {', '.join(one.name for one in PARTS)}")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "gpu-results.json")
    parser.add_argument("--write-docs", action="store_true", help="nothing runs")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "gpu-results.md")
    parser.add_argument(
        "--dry-run",
        type=Path,
        metavar="DOUBLES",
        help="on the doubles in this folder, for the tests",
    )
    arguments = parser.parse_args()
    if arguments.write_docs:
        figures = json.loads(arguments.json.read_text("utf-8")) if arguments.json.exists() else {}
        arguments.docs.write_text(report.document(figures), encoding="utf-8")
        print(f"{arguments.docs} is written from {arguments.json if figures else 'nothing'}")
        return
    only = set(arguments.only.split(",")) if arguments.only else {one.name for one in PARTS}
    if unknown := only - {one.name for one in PARTS}:
        parser.error(f"no part {', '.join(sorted(unknown))}")
    run = Run(arguments.json.resolve(), arguments.budget_s, arguments.dry_run)
    for one in PARTS:
        if one.name in only:
            run.part(one)
    figures = run.finish()
    print(report.table(figures))
    print(f"\n{arguments.json}: {len(figures)} figures in {figures['check_s']:.0f} s")
    sys.exit(0 if report.is_whole(figures) else 1)


class Run:
    """One whole check; `figures` is what the JSON holds."""

    def __init__(self, json_file: Path, budget_s: float, doubles: Path | None) -> None:
        self._json, self._log = json_file, json_file.with_suffix(".log")
        self._began, self._budget_s, self._is_dry = time.monotonic(), budget_s, doubles is not None
        self._why_nothing_runs = ""
        self.figures: dict[str, Any] = {"budget_s": budget_s, "dry_run": self._is_dry}
        self._env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        if doubles is not None:
            doubles_env = {"LD_LIBRARY_PATH": str(doubles), part.DOUBLE: "tests.gpu.torch_double"}
            self._env |= doubles_env
        else:
            self._env.pop(part.DOUBLE, None)
        json_file.parent.mkdir(parents=True, exist_ok=True)
        self._log.write_text("", encoding="utf-8")

    @property
    def left_s(self) -> float:
        return self._budget_s - PARENT_S - (time.monotonic() - self._began)

    def part(self, one: Part) -> None:
        began = time.monotonic()
        print(f"{one.name} ...", file=sys.stderr, flush=True)
        self.figures[f"part_{one.name}"] = said = self._outcome(one)
        self.figures[f"part_{one.name}_s"] = round(time.monotonic() - began, 1)
        print(f"  {said}, {self.left_s:.0f} s are left", file=sys.stderr, flush=True)
        self._write()

    def _outcome(self, one: Part) -> str:
        if self._is_dry and one.name == BUILD:
            return "skipped: a dry run takes what is built"
        if self._why_nothing_runs:
            return f"skipped: {self._why_nothing_runs}"
        limit_s, options = self.left_s, []
        if one.seconds is None:
            seconds = min(2.0, limit_s - 5.0) if self._is_dry else limit_s - START_S
            if seconds < (0.5 if self._is_dry else LEAST_S):
                return f"skipped: no time is left of {self._budget_s:g} s"
            options = ["--seconds", f"{seconds:.1f}"]
        else:
            if limit_s < (5.0 if self._is_dry else START_S) + one.seconds * (not self._is_dry):
                return f"skipped: no time is left of {self._budget_s:g} s"
            limit_s = min(limit_s, one.limit_s)
            if one.seconds:
                options = ["--seconds", "0.5" if self._is_dry else f"{one.seconds:g}"]
        if "pytest" in one.command:
            return self._tests(one, limit_s)
        ended = self._process([*one.command, *options], limit_s, {})
        if one.name == BUILD:
            return "ok" if ended.code == 0 else f"failed: {ended.why}"
        figures = last_line(ended.out)
        if one.name == "environment" and ended.code != 0:
            why = figures.get("skipped", f"the machine cannot be read: {ended.why}")
            self._why_nothing_runs = why
        if ended.code == SKIPPED and "skipped" in figures:
            return f"skipped: {figures['skipped']}"
        if ended.code != 0 or not figures:
            return f"failed: {ended.why}"
        self.figures |= {f"{key}{one.suffix}": value for key, value in figures.items()}
        return "ok"

    def _tests(self, one: Part, limit_s: float) -> str:
        for name in ("pytest", "pytest_timeout"):
            if importlib.util.find_spec(name) is None:
                return f"skipped: {name} is not installed"
        command = list(one.command)
        if (
            command[-1] != ALONE
            and importlib.util.find_spec("xdist") is not None
            and not self._is_dry
        ):
            command += ["-n", "5"]  # counts and endings, no times: 16 cores have room
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder, "results.jsonl")
            # Tests marked `gpu` want a GPU, not the double: a dry run shows that they skip and say why.
            ended = self._process(
                command, limit_s, {"PYMON_GPU_RESULTS": str(results), part.DOUBLE: None}
            )
            lines = results.read_text("utf-8").splitlines() if results.exists() else []
        outcomes: dict[str, str] = {}
        for line in map(json.loads, lines):
            why = f": {line['why']}" if line["why"] else ""
            outcomes[line["test"]] = f"{line['outcome']}{why}"
            self.figures |= line["figures"]
        self.figures |= {f"test_{name}": outcome for name, outcome in outcomes.items()}
        failed = [name for name, outcome in outcomes.items() if outcome.startswith("failed")]
        if ended.code not in (0, 1) or not outcomes:
            return f"failed: {ended.why}"
        if failed:
            return f"failed: {len(failed)} of {len(outcomes)} tests"
        if all(outcome.startswith("skipped") for outcome in outcomes.values()):
            return next(iter(outcomes.values()))
        return "ok"

    def _process(self, command: list[str], limit_s: float, env: dict[str, str | None]) -> Ended:
        """Ends it, and all that it started, at its limit."""
        merged = {**self._env, "PYMON_NATIVE": "require", **env}
        with self._log.open("a", encoding="utf-8") as log, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                errors="replace",
                cwd=ROOT,
                env={name: value for name, value in merged.items() if value is not None},
                start_new_session=True,
            )
            late = False
            try:
                out, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                late = True
                kill_group(process.pid)
                out, _ = process.communicate()
            kill_group(process.pid)  # what it may have left behind
            errors.seek(0)
            err = errors.read()
            log.write(f"== {' '.join(command)}\n{out}\n{err}\n")
        why = " ".join((last_text(err) or last_text(out) or "it said nothing").split())[:300]
        if late:
            why = f"no end within {limit_s:.0f} s ({why})"
        elif process.returncode < 0:
            why = f"ended by {signal.Signals(-process.returncode).name} ({why})"
        return Ended(process.returncode, out, why)

    def finish(self) -> dict[str, Any]:
        self.figures |= report.derived(self.figures)
        self.figures["check_s"] = round(time.monotonic() - self._began, 1)
        if commit := pymon_commit():
            self.figures["pymon_commit"] = commit
        self._write()
        return self.figures

    def _write(self) -> None:
        text = json.dumps(self.figures, indent=1) + "\n"
        beside = self._json.with_suffix(".part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self._json)


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    why: str  # one line, for a code that is not 0


def last_line(out: str) -> dict[str, Any]:
    """The figures that a measurement printed last; none where it did not come to that."""
    line = out.strip().rsplit("\n", 1)[-1]
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def last_text(text: str) -> str:
    """The last line that is not empty."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def pymon_commit() -> str | None:
    """Absent in a copy without its history."""
    try:
        command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


if __name__ == "__main__":
    main()

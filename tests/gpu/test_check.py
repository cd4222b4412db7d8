"""`make gpu-check` without a GPU: what it says then, a dry run on the doubles, and parts that end badly."""

import json
import os
import subprocess
import sys

import pytest

from bench.gpu import check, report
from pymon import native
from tests.native.build import ROOT, gpu_doubles

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(600)
FIGURES = (
    "launch_eager_tiny_host_cupti_added_ns",
    "launch_graph_total_cupti_sync_added_ns",
    "gpt_all_mean_ratio",
    "gpt_noise_p999_ratio",
    "gpt_residue_ratio",
    "resnet_events_p99_ratio",
    "resnet_without_noise_ratio",
    "event_record_ns",
    "event_elapsed_ns",
    "mark_driver_ns",
    "flood_records",
    "replays_gpu_growth_mib",
)


def checked(folder, *options):
    """The JSON, the exit code, and what was printed."""
    results = folder / "gpu-results.json"
    command = [sys.executable, "-m", "bench.gpu.check", "--json", str(results), *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=500, env=env)
    assert results.exists(), done.stderr
    return json.loads(results.read_text("utf-8")), done.returncode, done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_every_part_is_skipped_with_the_reason(tmp_path):
    figures, code, printed = checked(tmp_path)
    why = f"skipped: torch.cuda.is_available() is False (torch {torch.__version__})"
    assert {figures[f"part_{one.name}"] for one in check.PARTS} == {why}
    assert code == 1
    assert f"part_tests: {why}" in printed
    assert "No GPU machine could be had yet" in report.document(figures)


@pytest.mark.slow
@pytest.mark.skipif(native.probe()[0] is None, reason=native.probe()[1])
def test_a_dry_run_on_the_doubles_makes_every_figure(tmp_path):
    figures, _, printed = checked(tmp_path, "--dry-run", str(gpu_doubles()))
    outcomes = {one.name: figures[f"part_{one.name}"] for one in check.PARTS}
    assert outcomes.pop("build") == "skipped: a dry run takes what is built"
    for name in ("tests", "tests_alone"):
        assert "torch.cuda.is_available() is False" in outcomes.pop(name)
    assert set(outcomes.values()) == {"ok"}
    assert [key for key in FIGURES if not isinstance(figures.get(key), float | int)] == []
    assert figures["gpu"] == "a double"
    assert figures["cupti"] == 130001
    assert figures["replays_records"] == figures["replays_launched"]
    assert figures["flood_state"] == figures["gpt_cupti_state"] == "running: running"
    assert figures["test_no_graph_capture_fails"].startswith("skipped: ")
    assert not [value for value in figures.values() if isinstance(value, dict | list)]  # flat
    assert "A DRY RUN on doubles" in printed
    assert "No GPU machine could be had yet" in report.document(figures)


def part_of(tmp_path, code, limit_s=20.0):
    """What becomes of a part that is this Python code."""
    run = check.Run(tmp_path / "results.json", 60.0, None)
    run.part(check.Part("one", ("-c", code), limit_s))
    kept = json.loads((tmp_path / "results.json").read_text("utf-8"))
    return kept["part_one"], kept


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('planned')", "failed: ValueError: planned"),
        ("import os; os.abort()", "failed: ended by SIGABRT (it said nothing)"),
        ("print('no figures')", "failed: no figures"),
        ('print(\'{"skipped": "no such chip"}\'); exit(3)', "skipped: no such chip"),
    ],
)
def test_a_part_that_ends_badly_is_one_line(tmp_path, code, said):
    assert part_of(tmp_path, code)[0] == said


def test_a_part_that_hangs_is_ended_with_its_children(tmp_path):
    code = (
        "import subprocess, time; child = subprocess.Popen(['sleep', '60']);"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    said, _ = part_of(tmp_path, code, limit_s=8.0)
    log = (tmp_path / "results.log").read_text("utf-8")
    pid = next(line for line in log.splitlines() if line.isdigit())
    assert said == f"failed: no end within 8 s ({pid})"
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout
    assert state.strip()[:1] in ("", "Z")


def test_figures_of_a_part_stay_when_a_later_one_fails(tmp_path):
    run = check.Run(tmp_path / "results.json", 60.0, None)
    run.part(check.Part("good", ("-c", "print('noise'); print('{\"figure_ns\": 1.5}')"), 20.0))
    run.part(check.Part("bad", ("-c", "exit(7)"), 20.0))
    kept = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert kept["figure_ns"] == 1.5
    assert kept["part_good"] == "ok"
    assert kept["part_bad"].startswith("failed: ")


def test_no_part_begins_without_time_for_it(tmp_path):
    run = check.Run(tmp_path / "results.json", 10.0, None)
    run.part(check.Part("late", ("-c", "print('{}')"), 20.0, 5.0))
    run.part(check.Part("watch", ("-c", "print('{}')"), 0, None))
    assert run.figures["part_late"] == "skipped: no time is left of 10 s"
    assert run.figures["part_watch"] == "skipped: no time is left of 10 s"


TESTS = """
import pytest

def test_measures(record_property):
    record_property("found_us", 2.5)

def test_breaks():
    assert 1 == 2, "planned"

def test_cannot():
    pytest.skip("no such chip")
"""


def test_outcomes_reasons_and_figures_of_tests_are_kept(tmp_path):
    (tmp_path / "test_planned.py").write_text(TESTS, encoding="utf-8")
    run = check.Run(tmp_path / "results.json", 120.0, None)
    pytest_of = (
        "-m",
        "pytest",
        "-p",
        "tests.gpu.conftest",
        str(tmp_path),
        "--rootdir",
        str(tmp_path),
    )
    run.part(check.Part("tests", (*pytest_of, "-k", check.ALONE), 60.0))
    assert run.figures["part_tests"].startswith("failed: ")  # none was found
    run.part(check.Part("tests", pytest_of, 60.0))
    assert run.figures["part_tests"] == "failed: 1 of 3 tests"
    assert run.figures["test_measures"] == "passed"
    assert run.figures["test_breaks"].startswith("failed: AssertionError: planned")
    assert run.figures["test_cannot"] == "skipped: no such chip"
    assert run.figures["found_us"] == 2.5


class TestReport:
    FIGURES = {  # noqa: RUF012 - read only
        "dry_run": False,
        "gpu": "NVIDIA H200",
        "driver": "580.1",
        "gpt_step_us": 9000.0,
        "gpt_all_mean_ratio": 0.002,
        "gpt_all_p99_ratio": 0.03,
        "gpt_noise_mean_ratio": 0.001,
        "gpt_noise_p99_ratio": 0.001,
        "gpt_without_step_us": 8900.0,
        "gpt_without_step_us_again": 9100.0,
        "agree_total_ratio": -0.02,
        "replays_gpu_growth_mib": 1.0,
        "part_flood": "failed: ended by SIGSEGV (planned)",
        "test_a": "passed",
        "test_b": "skipped: no such thing",
    }

    def test_aims_stand_beside_the_figures(self):
        verdicts = {what.strip(): aim for what, _, _, aim in report.rows(self.FIGURES)}
        assert verdicts["all layers add, mean"] == "≤ 0.4 %: met"
        assert verdicts["all layers add, p99"] == "≤ 1 %: MISSED"
        assert verdicts["GPU time, ours against torch.profiler"] == "≤ 1 %: MISSED"
        assert verdicts["growth of GPU memory"] == "≤ 64 MiB: met"

    def test_what_the_noise_hides_is_neither_met_nor_missed(self):
        noisy = {**self.FIGURES, "gpt_noise_mean_ratio": 0.05}
        verdicts = {what.strip(): aim for what, _, _, aim in report.rows(noisy)}
        assert verdicts["all layers add, mean"] == "≤ 0.4 %: not told from noise"

    def test_what_stays_while_yielded_is_told_against_processes_without_pymon(self):
        assert report.derived(self.FIGURES) == {
            "gpt_residue_ratio": pytest.approx(0.0),
            "gpt_without_noise_ratio": pytest.approx(200 / 9000),
        }

    def test_the_page_has_the_machine_the_figures_and_what_is_lacking(self):
        page = report.document(self.FIGURES)
        assert "| gpu | NVIDIA H200 |" in page
        assert "| a step of a small GPT | 9 ms |  |  |" in page
        assert "- `part_flood`: failed: ended by SIGSEGV (planned)" in page
        assert "- `test_b`: skipped: no such thing" in page
        assert "1 tests passed" in page

    def test_it_is_whole_only_where_all_went_well(self):
        assert not report.is_whole({})
        assert report.is_whole({"part_a": "ok", "part_a_s": 1.0, "test_a": "passed"})
        assert not report.is_whole(self.FIGURES)


def test_the_page_can_be_written_without_running_anything(tmp_path):
    page = tmp_path / "gpu-results.md"
    results = tmp_path / "none.json"
    command = [sys.executable, "-m", "bench.gpu.check", "--write-docs", "--docs", str(page)]
    subprocess.run([*command, "--json", str(results)], cwd=ROOT, check=True, capture_output=True)
    assert "make gpu-check" in page.read_text("utf-8")
    assert not results.exists()

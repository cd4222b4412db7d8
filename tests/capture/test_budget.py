from pymon.base.clock import SystemClock
from pymon.capture.budget import Budget, CaptureSettings
from pymon.sources.procfs import Procfs
from tests.clock_double import ClockDouble


def test_a_folder_that_is_gone_is_the_reason(tmp_path):
    budget = Budget(CaptureSettings(), SystemClock(), tmp_path / "gone")

    assert "cannot be used" in budget.refusal("manual")


def test_busy_until_it_ended(tmp_path):
    budget = Budget(CaptureSettings(min_free_bytes=1), SystemClock(), tmp_path)
    budget.began("c1", "manual")
    assert "c1 is under way" in budget.refusal("signal")

    budget.ended()
    assert budget.refusal("signal") == ""


def test_memory_that_is_short_is_the_reason_and_unknown_memory_is_none(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 4096 kB\nMemAvailable: 1024 kB\n")
    settings = CaptureSettings(min_free_bytes=2 * 1024 * 1024)

    short = Budget(settings, SystemClock(), tmp_path, Procfs(tmp_path))
    unknown = Budget(settings, SystemClock(), tmp_path, Procfs(tmp_path / "absent"))

    assert "1.0 MiB of memory are available, 2.0 MiB must be" in short.refusal("manual")
    assert unknown.refusal("manual") == ""


def test_each_cause_cools_down_by_itself_and_a_person_waits_for_none(tmp_path):
    clock = ClockDouble()
    budget = Budget(CaptureSettings(min_free_bytes=1, cooldown_s=300), clock, tmp_path)
    budget.began("c1", "step_slow:a")
    budget.ended()
    clock.now_s += 100

    assert "again in 200 s" in budget.refusal("step_slow:a")
    assert (
        budget.refusal("step_slow:b") == budget.refusal("manual") == budget.refusal("signal") == ""
    )

    clock.now_s += 200
    assert budget.refusal("step_slow:a") == ""


def test_causes_that_have_cooled_down_are_forgotten(tmp_path):
    clock = ClockDouble()
    budget = Budget(CaptureSettings(), clock, tmp_path)
    for number in range(100):
        budget.began(f"c{number}", f"step_slow:{number}")
        clock.now_s += 100

    assert len(budget._last_ns) <= 4

from pymon.base.clock import SystemClock
from pymon.capture.budget import Budget, CaptureSettings
from pymon.sources.procfs import Procfs


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

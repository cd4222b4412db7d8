from pymon.base.clock import SystemClock
from pymon.capture.budget import Budget, CaptureSettings


def test_a_folder_that_is_gone_is_the_reason(tmp_path):
    budget = Budget(CaptureSettings(), SystemClock(), tmp_path / "gone")

    assert "cannot be used" in budget.refusal("manual")


def test_busy_until_it_ended(tmp_path):
    budget = Budget(CaptureSettings(min_free_bytes=1), SystemClock(), tmp_path)
    budget.began("c1", "manual")
    assert "c1 is under way" in budget.refusal("signal")

    budget.ended()
    assert budget.refusal("signal") == ""

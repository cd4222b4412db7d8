"""Parts of the step add up to it."""

from __future__ import annotations

import pytest

from pymon.reports.step_parts import step_parts
from tests.reports.doubles import facts, gpu_time


@pytest.mark.parametrize("with_gpu", [True, False])
def test_parts_are_the_whole(with_gpu: bool) -> None:
    parts = step_parts(facts(gpu_time() if with_gpu else None))
    assert sum(part.time_s for part in parts) == pytest.approx(1.0)
    assert all(part.time_s > 0 for part in parts)

import sys

import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.nvml import Nvml
from tests.sources.nvml_double import BARE, WHOLE, NvmlDouble


@pytest.fixture
def nvml(monkeypatch):
    def make(*gpus, driver=True):
        monkeypatch.setitem(sys.modules, "pynvml", NvmlDouble(*gpus, driver=driver))
        return Nvml()

    return make


def test_units_are_ratios_and_watts(nvml):
    reading = nvml(WHOLE).read(0)

    assert reading.utilization_ratio == 0.75
    assert reading.power_w == 350.0
    assert reading.uuid == "GPU-1"


def test_what_a_gpu_does_not_support_is_none_and_never_zero(nvml):
    reading = nvml(BARE).read(0)

    assert reading.name == "A100"
    assert reading.utilization_ratio is reading.power_w is reading.memory_used_bytes is None


def test_no_driver_is_absent_with_the_reason(nvml):
    with pytest.raises(SourceAbsent, match="Driver Not Loaded"):
        nvml(driver=False).gpu_count()


def test_a_lost_gpu_is_a_failure_that_names_it(nvml):
    with pytest.raises(SourceFailed, match="GPU 1: GPU is lost"):
        nvml(WHOLE, "lost").read(1)

import sys

from pymon.collectors.nvml import NvmlCollector
from tests.sources.nvml_double import BARE, WHOLE, NvmlDouble


def test_one_lost_gpu_hides_no_healthy_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", NvmlDouble(WHOLE, "lost", BARE))

    section = NvmlCollector().collect()

    assert [gpu.uuid for gpu in section.gpus] == ["GPU-1", "GPU-2"]
    assert section.unreadable == (1,)

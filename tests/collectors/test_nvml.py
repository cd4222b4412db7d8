import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.nvml import NvmlCollector
from pymon.model.gpu import Driver, DriverState, GpuState
from tests.exporters.gpus import gpu, section


def test_a_node_without_a_driver_is_absent_with_the_reason():
    nothing = section(driver=Driver(DriverState.NO_LIBRARY, "NVML Shared Library Not Found"))

    with pytest.raises(SourceAbsent, match="NVML Shared Library Not Found"):
        NvmlCollector(lambda: nothing).collect()


@pytest.mark.parametrize("state", DriverState)
def test_gpus_that_were_seen_stay_in_the_section_whatever_becomes_of_the_driver(state):
    seen = section(gpu(0, GpuState.UNKNOWN, fast=None), driver=Driver(state, "why"))

    assert NvmlCollector(lambda: seen).collect() is seen

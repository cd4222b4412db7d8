"""GPUs as the worker tells of them."""

from pymon.model.gpu import (
    Driver,
    DriverState,
    FastReadings,
    Gpu,
    GpuIdentity,
    GpuSection,
    GpuState,
    NvmlCost,
)

UP = Driver(DriverState.OK, "", "580.126.09", "13.580.126.09", "13.0")
COST = NvmlCost(0.5, 100, (("nvmlDeviceGetMigMode", "3", 1),), (), 1, 0)


def gpu(index, state=GpuState.OK, fast=FastReadings(), **more):  # noqa: B008 - frozen
    """A GPU that answers, but tells nothing unless the test says what."""
    identity = GpuIdentity(
        f"GPU-{index}", "NVIDIA H200", f"00000000:{index:02X}:00.0", "", False, False
    )
    return Gpu(index, f"GPU-{index}", state, identity=identity, fast=fast, **more)


def section(*gpus, driver=UP):
    """The section of these GPUs."""
    return GpuSection(gpus, driver, COST)

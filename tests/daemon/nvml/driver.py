"""A supervisor at the double, with deadlines that a test can wait for."""

import time
from dataclasses import dataclass

from pymon.daemon.nvml.settings import NvmlSettings
from pymon.daemon.nvml.supervisor import Supervisor
from pymon.model.gpu import DriverState, GpuState
from tests.waiting import PATIENCE_S

CALL_S = (
    0.25  # far above what a call of the double takes; a worker that is only starved is waited for
)
TICK_MAX_S = 10.0  # BUDGET_S on a machine that is not always there; what hangs never returns


@dataclass
class DriverDouble:
    """A node and the supervisor that watches it."""

    node: object
    supervisor: Supervisor

    def tick(self):
        """One reading, and how long it took."""
        began_s = time.monotonic()
        section = self.supervisor.read()
        assert time.monotonic() - began_s < TICK_MAX_S, "a tick waits for no call that hangs"
        return section

    def until(self, condition, timeout_s=PATIENCE_S, pause_s=0.03):
        """The first section for which it holds."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            section = self.tick()
            if condition(section):
                return section
            assert time.monotonic() < deadline_s, (section.driver, states(section), section.cost)
            time.sleep(pause_s)

    def until_read(self):
        """All GPUs are read, slow readings and activity included."""
        return self.until(lambda section: section.gpus and all(map(complete, section.gpus)))


def settings(node, **more):
    short = {"call_timeout_s": CALL_S, "init_timeout_s": PATIENCE_S, "slow_s": 0.3}
    return NvmlSettings(**({"library": str(node.library)} | short | more))


def complete(gpu):
    """Whether it is healthy and nothing of it lacks."""
    return (
        gpu.state is GpuState.OK
        and gpu.fast is not None
        and gpu.fast.memory is not None
        and gpu.fast.power_w is not None
        and gpu.slow is not None
    )


def states(section):
    return [gpu.state.value for gpu in section.gpus]


def is_up(section):
    return section.driver.state is DriverState.OK

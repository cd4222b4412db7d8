"""Everything goes wrong in turn: no reading raises or takes its tick's time, and in the end all is read again."""

import random
import time

import pytest

from pymon.model.gpu import GpuState
from pymon.sources.nvml.announce import CALLS
from tests.daemon.nvml.driver import complete, settings
from tests.daemon.nvml.test_supervisor import symbol
from tests.nvml_double import gpu, mig_gpu, standard_node, uuid_of

CODES = (1, 2, 3, 4, 6, 9, 13, 15, 16, 18, 25, 999, 12345)
GPUS = 4


def mishap(dice, state):
    """One more thing that is wrong, or different."""
    function = dice.choice(["*", *map(symbol, CALLS)])
    kind = dice.choice(
        ["code", "code", "code", "hang", "crash", "slow", "unplug", "plug", "mig", "text"]
    )
    index = dice.choice([None, *range(GPUS)])
    if kind == "code":
        state["faults"].append({"function": function, "gpu": index, "code": dice.choice(CODES)})
    elif kind in ("hang", "crash"):
        state["faults"].append({"function": function, "gpu": index, kind: True})
    elif kind == "slow":
        state["faults"].append({"function": function, "gpu": index, "latency_ms": 30})
    elif kind == "unplug" and len(state["gpus"]) > 1:
        state["gpus"].pop(dice.randrange(len(state["gpus"])))
    elif kind == "plug":
        state["gpus"].append(gpu(dice.randrange(GPUS, 3 * GPUS)))
    elif kind == "mig":
        at = dice.randrange(len(state["gpus"]))
        state["gpus"][at] = mig_gpu(dice.randrange(GPUS), dice.randrange(8))
    elif kind == "text":
        state["gpus"][0]["name"] = "".join(chr(dice.randrange(1, 256)) for _ in range(40))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_readings_go_on_and_all_comes_back(driver, seed):
    dice = random.Random(seed)
    double = driver(standard_node(GPUS), call_timeout_s=0.15, init_timeout_s=0.6)
    double.until_read()
    until_s = time.monotonic() + 6
    while time.monotonic() < until_s:
        if dice.random() < 0.3:
            double.node.mend()
        double.node.change(lambda state: mishap(dice, state))
        for _ in range(3):
            section = double.tick()
            assert 1 + len(double.supervisor._stuck) <= 4 + (double.supervisor._child is None)
            assert all(one.fast is None for one in section.gpus if one.state is not GpuState.OK)
        double.supervisor._skips.try_all(0)
        double.supervisor._start.at_s = 0

    double.node.change(lambda state: (state.clear(), state.update(standard_node(GPUS))))
    double.supervisor.settings = settings(double.node)

    def is_whole(section):
        double.supervisor._skips.try_all(0)
        double.supervisor._start.at_s = 0
        found = {one.uuid: one for one in section.gpus}
        return all(
            uuid_of(index) in found and complete(found[uuid_of(index)]) for index in range(GPUS)
        )

    double.until(is_whole)

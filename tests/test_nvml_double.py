"""The double behaves as the driver's library does where tests rely on it; asked through nvidia-ml-py in a process."""

import json
import os
import subprocess
import sys

import pytest

from tests.nvml_double import NodeDouble, standard_node, uuid_of, without
from tests.waiting import PATIENCE_S


def ask(node, code, **env):
    """What a process prints as JSON that finds the double where it would find the driver's library."""
    lines = ["import json, os, time, pynvml as p", "p.nvmlInit()", *code]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env={**node.env, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


CODE_OF = """
def code_of(call, *args):
    try:
        call(*args)
    except p.NVMLError as err:
        return err.value
    return 0
"""


def test_what_a_gpu_lacks_is_not_supported_and_faults_are_obeyed(tmp_path):
    node = NodeDouble(tmp_path)
    node.change(lambda state: state["gpus"][1].pop("utilization"))
    node.fail("nvmlDeviceGetName", 15, gpu=1)
    node.fail("nvmlDeviceGetIndex", latency_ms=50)

    codes, took_s = ask(
        node,
        [
            CODE_OF,
            "h = [p.nvmlDeviceGetHandleByIndex(i) for i in (0, 1)]",
            "codes = [code_of(f, g) for f in (p.nvmlDeviceGetUtilizationRates, p.nvmlDeviceGetName) for g in h]",
            "began = time.monotonic(); p.nvmlDeviceGetIndex(h[0])",
            "print(json.dumps([codes, time.monotonic() - began]))",
        ],
    )

    assert codes == [0, 3, 0, 15]
    assert took_s >= 0.05


def test_handles_die_at_shutdown_and_with_their_gpu(tmp_path):
    node = NodeDouble(tmp_path)
    rest = json.dumps({**standard_node(1)})
    codes = ask(
        node,
        [
            CODE_OF,
            "h = [p.nvmlDeviceGetHandleByIndex(i) for i in (0, 1)]",
            f"open(os.environ['PYMON_NVML_DOUBLE'], 'w').write({rest!r}); time.sleep(0.05)",
            "gone = code_of(p.nvmlDeviceGetName, h[1]), code_of(p.nvmlDeviceGetName, h[0])",
            "p.nvmlShutdown(); shut = code_of(p.nvmlDeviceGetName, h[0])",
            "p.nvmlInit(); print(json.dumps([*gone, shut, code_of(p.nvmlDeviceGetName, h[0])]))",
        ],
    )

    assert codes == [15, 0, 1, 2]


def test_a_symbol_can_be_missing(tmp_path):
    node = NodeDouble(tmp_path)
    old = without(tmp_path / "old", "nvmlDeviceGetFieldValues")

    found = ask(
        node,
        [
            CODE_OF,
            "h = p.nvmlDeviceGetHandleByIndex(0)",
            "print(json.dumps([code_of(p.nvmlDeviceGetFieldValues, h, [186]), p.nvmlDeviceGetUUID(h)]))",
        ],
        LD_LIBRARY_PATH=str(old.parent),
    )

    assert found == [13, uuid_of(0)]


@pytest.mark.parametrize("number", [1, 16])
def test_a_node_has_as_many_gpus_as_its_file(tmp_path, number):
    node = NodeDouble(tmp_path, standard_node(number))

    assert ask(node, ["print(p.nvmlDeviceGetCount())"]) == number
    assert os.environ.get("PYMON_NVML_DOUBLE") is None

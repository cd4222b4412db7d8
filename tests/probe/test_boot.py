"""PYMON=1 attaches at the end of `import torch`, and costs a Python that never trains next to nothing."""

import pytest

from pymon import native
from tests.probe.training import environment, python

pytest.importorskip("torch", reason="the probe hooks torch")
pytestmark = pytest.mark.skipif(native.probe()[0] is None, reason=native.probe()[1])

HOOKED = """
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
print(len(hooks), type(type(torch.autograd.Variable._execution_engine).run_backward).__name__)
"""


@pytest.fixture
def env(tmp_path):
    return environment(tmp_path / "agent.sock")


def test_switched_on_it_hooks_torch(env):
    assert python(HOOKED, env) == (0, "1 BackwardPass\n", "")


def test_switched_off_it_leaves_torch_alone(env):
    assert python(HOOKED, {**env, "PYMON": "0"}) == (0, "0 method_descriptor\n", "")


def test_looking_for_torch_first_does_not_hide_it(env):
    looked = "import importlib.util; importlib.util.find_spec('torch')\n" + HOOKED
    assert python(looked, env)[1] == "1 BackwardPass\n"


def test_the_finder_goes_away_and_torchs_loader_is_as_it_was(env):
    code = (
        "import sys, torch; print(type(sys.meta_path[0]).__module__, vars(torch.__loader__).keys())"
    )
    assert "pymon" not in python(code, env)[1]
    assert "exec_module" not in python(code, env)[1]


def test_without_torch_it_loads_nothing_heavy(env):
    # `site` itself may load some of these, so they are compared with a Python that pymon leaves alone.
    heavy = (
        "import sys; print(sorted({'typing', 'json', 'socket', 'dataclasses'} & set(sys.modules)))"
    )
    armed, off = python(heavy, env)[1], python(heavy, {**env, "PYMON": "0"})[1]
    assert armed == off


def test_a_missing_torch_fails_as_ever(env):
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        "try: import torch\nexcept ModuleNotFoundError as err: print(err)"
    )
    assert python(code, env) == (0, "No module named 'torch'\n", "")

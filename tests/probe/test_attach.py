"""Attaching never raises, and nothing is a rank before it trains."""

import pytest

from pymon import native
from tests.probe.training import environment, python

pytest.importorskip("torch", reason="the probe hooks torch")

PAGES = "print(sum('pymon-page' in os.readlink(f) for f in glob.glob('/proc/self/fd/*') if os.path.lexists(f)))"
built = pytest.mark.skipif(native.probe()[0] is None, reason=native.probe()[1])


@pytest.fixture
def env(tmp_path):
    return environment(tmp_path / "agent.sock")


@built
def test_importing_torch_makes_no_page_and_no_thread(env):
    code = f"import glob, os, threading, torch\n{PAGES}\nprint(threading.active_count())"
    assert python(code, env) == (0, "0\n1\n", "")


@built
def test_attaching_twice_counts_once(env):
    code = """
import pymon, torch
pymon.attach(); pymon.attach()
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
print(len(hooks))
"""
    assert python(code, env) == (0, "1\n", "")


@built
def test_a_profiler_that_warms_up_before_the_first_step_is_known(env):
    """Or a capture would start beside it, which empties its trace and can crash the process."""
    code = """
import os, torch
from torch.profiler import ProfilerActivity, profile, schedule
session = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=5, active=1))
session.__enter__()
from pymon.probe.profiler_registry import registry
print(registry().user_is_active, flush=True); os._exit(0)
"""
    assert python(code, env)[1] == "True\n"


def test_without_the_native_part_training_goes_on_with_a_word_about_it(env):
    code = """
import sys
sys.modules["pymon.native._probe"] = None  # as where it was not built
import torch, pymon
pymon.step()
with pymon.phase("x"): pass
torch.ones(1, requires_grad=True).sum().backward()
print("trained")
"""
    status, out, err = python(code, env)
    assert (status, out) == (0, "trained\n")
    assert len(err.splitlines()) == 1
    assert "_probe is not built" in err


@built
def test_ctrl_c_reaches_the_training(env):
    code = """
import os, signal, threading, torch
weight = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(weight.parameters(), lr=0.1)
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        weight(torch.ones(1, 2)).sum().backward(); optimizer.step()
except KeyboardInterrupt:
    print("interrupted")
"""
    assert python(code, env) == (0, "interrupted\n", "")

"""PYMON=1 attaches at the end of `import torch`, and costs a Python that never trains next to nothing."""

import shutil
import subprocess
import sys

import pytest

from pymon import native
from tests.probe.training import ROOT, environment, python

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


# But for the one that waits for later modules of torch's, as torch._dynamo (pymon/probe/on_import.py).
FINDERS = (
    "print([(getattr(one, '__module__', ''), type(one).__module__, repr(one)) for one in sys.meta_path"
    " if type(one).__module__ != 'pymon.probe.on_import' and '__editable__' not in repr(one)])"
)


def test_switched_on_it_hooks_torch(env):
    assert python(HOOKED, env) == (0, "1 BackwardPass\n", "")


def test_switched_off_it_leaves_torch_alone(env):
    assert python(HOOKED, {**env, "PYMON": "0"}) == (0, "0 method_descriptor\n", "")


def test_looking_for_torch_first_does_not_hide_it(env):
    looked = "import importlib.util; importlib.util.find_spec('torch')\n" + HOOKED
    assert python(looked, env)[1] == "1 BackwardPass\n"


def test_the_finder_goes_away_and_torchs_loader_is_as_it_was(env):
    status, out, _ = python(
        f"import sys, torch; {FINDERS}; print(vars(torch.__loader__).keys())", env
    )
    assert status == 0
    assert "'name'" in out
    assert "pymon" not in out
    assert "exec_module" not in out


def test_without_torch_it_loads_nothing_heavy(env):
    # `site` itself may load some of these, so they are compared with a Python that pymon leaves alone.
    heavy = (
        "import sys; print(sorted({'typing', 'json', 'socket', 'dataclasses'} & set(sys.modules)))"
    )
    armed, off = python(heavy, env), python(heavy, {**env, "PYMON": "0"})
    assert armed[0] == 0
    assert armed == off


@pytest.fixture
def installed(env, tmp_path):
    """Runs code in a Python of nothing but the packaged `.pth` and pymon; gives what it prints."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "pymon").symlink_to(ROOT / "pymon")
    shutil.copy(ROOT / "pymon/probe/pymon.pth", tmp_path / "site")
    bare = {key: value for key, value in env.items() if key not in ("PYTHONPATH", "PYMON")}

    def run(code, **more):
        start = f"import site; site.addsitedir({str(tmp_path / 'site')!r})\n"
        command = [sys.executable, "-S", "-c", start + code]
        done = subprocess.run(command, env=bare | more, capture_output=True, text=True, timeout=60)
        assert done.stderr == ""
        return done.stdout

    return run


def test_the_pth_loads_no_module_at_all_in_a_process_that_never_imports_torch(installed):
    modules = "import sys; print(sorted(sys.modules))"
    assert installed(modules, PYMON="1") == installed(modules, PYMON="0") == installed(modules)


def test_the_pth_attaches_when_torch_is_imported(installed):
    other = [path for path in sys.path if path.endswith("site-packages")]
    code = f"import sys; sys.path += {other!r}\n{HOOKED}"
    said = installed(f"{code}\n{FINDERS}", PYMON="1").splitlines()
    assert said[0] == "1 BackwardPass"
    assert "FrozenImporter" in said[1] or "BuiltinImporter" in said[1]  # Python's own are there
    assert "ymon" not in said[1]
    assert installed(code, PYMON="0") == "0 method_descriptor\n"


def test_the_pth_leaves_commands_alone_and_a_missing_torch_missing(installed):
    code = "import sys; sys.argv = ['/usr/bin/pip']\n"
    code += "try: import torch\nexcept ModuleNotFoundError as err: print(err)\n"
    code += "print('pymon.probe.attach' in sys.modules)"
    assert installed(code, PYMON="1") == "No module named 'torch'\nFalse\n"


def test_a_missing_torch_fails_as_ever(env):
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        "try: import torch\nexcept ModuleNotFoundError as err: print(err)"
    )
    assert python(code, env) == (0, "No module named 'torch'\n", "")

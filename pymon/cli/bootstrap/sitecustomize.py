"""Attaches pymon where its `.pth` is not installed: a checkout run in place.

`pymon run` puts this folder first in PYTHONPATH only then. Python loads one `sitecustomize`; the
one that this hides is loaded from here, and nothing may come out of ours.
"""

import contextlib
import importlib
import os
import sys
from importlib import util
from importlib.machinery import PathFinder


def _load_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _attach() -> None:
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # The compiled modules are of one Python version; another one in the job is left alone.
    if os.environ.get("PYMON_BOOT_PYTHON") != f"{sys.version_info[0]}.{sys.version_info[1]}":
        return
    if util.find_spec("pymon") is None:
        # By its spec, not by sys.path, which would also offer `tests` and `setup` to the job.
        init = os.path.join(package, "__init__.py")
        spec = util.spec_from_file_location("pymon", init, submodule_search_locations=[package])
        if spec is None or spec.loader is None:
            return
        module = util.module_from_spec(spec)
        sys.modules["pymon"] = module
        spec.loader.exec_module(module)
    importlib.import_module("pymon.probe.boot")  # attaches, as from the .pth


_load_hidden()
if os.environ.get("PYMON", "0") not in ("", "0"):
    with contextlib.suppress(BaseException):  # SystemExit in here would end the interpreter
        _attach()

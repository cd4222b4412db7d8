"""The only importer of the two compiled modules; where one is absent, WHY_NOT says why.

Without `_probe` there is no probe, without `_tools` no diagnosis; each says so to its user.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType


def _load(name: str) -> tuple[ModuleType | None, str]:
    try:
        return importlib.import_module(f"pymon.native.{name}"), ""
    except ImportError as err:
        return None, (
            f"pymon.native.{name} is not built ({err}); reinstall with a C++ compiler and the Python headers "
            "(Debian: apt-get install g++ python3-dev) and PYMON_NATIVE=require to see what fails"
        )


def probe() -> tuple[ModuleType | None, str]:
    """The writer and the hooks, for the training process; (None, why not) where it cannot be loaded."""
    return _load("_probe")


def tools() -> tuple[ModuleType | None, str]:
    """The page reader and the trace engine, for the daemon and the commands; (None, why not) likewise."""
    return _load("_tools")


def injection() -> Path | None:
    """The library for CUDA_INJECTION64_PATH, which measures programs that do not import pymon; None: not built."""
    library = Path(__file__).with_name("libpymon_inject.so")
    return library if library.exists() else None

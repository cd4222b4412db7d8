"""Loaded by `pymon.pth` where PYMON is set, when `import torch` begins: attaches at its end.

The `.pth` itself only puts one class first in `sys.meta_path`, which waits for that import: what this file costs, most
of it the search for it, is then nobody's who never trains. Here another finder takes its place until torch is there.
Nothing may raise: an exception would print a traceback at every start of Python, a SystemExit would end it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing, or importlib.util and .abc, costs every start of Python ten milliseconds each
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

# Commands that import torch or start trainings and are none themselves.
_NOT_A_TRAINING = ("pip", "pip3", "pymon")


class _TorchFinder:
    """Finds torch by the other finders, and attaches when its module body has run."""

    def __init__(self) -> None:
        self._busy = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch" or self._busy:
            return None
        import importlib.util  # here: torch is about to be imported, which takes seconds

        self._busy = True  # the search below comes back here
        try:
            spec = importlib.util.find_spec(fullname)
        except (ImportError, ValueError):
            return None
        finally:
            self._busy = False
        if spec is not None and spec.loader is not None:
            self._attach_after(spec.loader)
        return spec

    def _attach_after(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # An attribute of this one loader object: its type, and so pickling and inspection, stay as they were.
            if loader.__dict__.get("exec_module") is exec_module:
                del loader.exec_module
            original(module)
            if self in sys.meta_path:  # not before: `find_spec("torch")` alone imports nothing
                sys.meta_path.remove(self)
            from pymon.probe.attach import attach

            attach()

        loader.exec_module = exec_module


def _is_training() -> bool:
    program = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    return program not in _NOT_A_TRAINING


def boot() -> _TorchFinder | None:
    """Wait for torch, or attach at once where it is here already; gives who waits."""
    if os.environ.get("PYMON", "0") in ("", "0") or not _is_training():
        return None
    if "torch" in sys.modules:
        from pymon.probe.attach import attach

        attach()
        return None
    finder = _TorchFinder()
    sys.meta_path.insert(0, finder)
    return finder


waiting = boot()

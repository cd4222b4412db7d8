"""Runs something right after a module of torch's has been imported, whenever that is: attaching imports none of them.

The module is changed before whoever imports it takes names from it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Then = Callable[[Any], None]


class _Finder:
    """First in `sys.meta_path`; finds what it waits for by the other finders."""

    def __init__(self) -> None:
        self.awaited: dict[str, list[Then]] = {}
        self._busy = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.awaited or self._busy:
            return None
        self._busy = True  # the search below comes back here
        try:
            spec = importlib.util.find_spec(fullname)
        except (ImportError, ValueError, AttributeError):
            return None
        finally:
            self._busy = False
        if spec is not None and spec.loader is not None:
            self._run_after(spec.loader, fullname)
        return spec

    def _run_after(self, loader: Any, fullname: str) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if loader.__dict__.get("exec_module") is exec_module:
                del loader.exec_module  # an attribute of this one object: its type stays as it was
            original(module)
            for then in self.awaited.pop(fullname, ()):
                _safely(then, module)

        loader.exec_module = exec_module


_finder = _Finder()


def after_import(name: str, then: Then) -> None:
    """Calls `then` with the module, now where it is there already; an exception of `then` ends there."""
    module = sys.modules.get(name)
    if module is not None:
        _safely(then, module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.awaited.setdefault(name, []).append(then)


def _safely(then: Then, module: Any) -> None:
    try:
        then(module)
    except Exception as err:  # noqa: BLE001 - the border to somebody's training
        from pymon.probe.attach import warn

        warn(f"does not watch {getattr(module, '__name__', module)}: {type(err).__name__}: {err}")

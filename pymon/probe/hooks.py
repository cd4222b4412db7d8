"""Where the native hooks go into torch; docs/probe.md says what each counts.

Private names of torch are used only where they exist: what is missing is then not seen, and the rest still works.
"""

from __future__ import annotations

import atexit
import os
from types import ModuleType
from typing import Any


def install(native: Any, torch: ModuleType) -> None:
    """Put the hooks in, for good: they are never taken out, since others may have wrapped them since."""
    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(native.optimizer_pre)
    optimizer.register_optimizer_step_post_hook(native.optimizer_post)
    _wrap_fetch(native)
    _wrap_backward(native, torch)
    graph_task = getattr(torch._C, "_current_graph_task_id", None)
    if graph_task is not None:
        native.set_graph_task(graph_task)
    atexit.register(native.publish)
    if torch.__file__:
        native.set_library_folder(os.path.dirname(torch.__file__) + os.sep)


def _wrap_fetch(native: Any) -> None:
    """`__next__` of the base class: the iterators with and without workers both inherit or call it."""
    from torch.utils.data import dataloader

    base = getattr(dataloader, "_BaseDataLoaderIter", None)
    if base is not None and hasattr(base, "__next__"):
        base.__next__ = native.DataFetch(base.__next__)


def _wrap_backward(native: Any, torch: ModuleType) -> None:
    """The engine's entry sees every way into a backward pass; `torch.autograd.backward` all but `autograd.grad`.

    Only one of them: the second calls the first, and both together would count twice.
    """
    autograd: Any = torch.autograd
    name = "_engine_run_backward" if hasattr(autograd, "_engine_run_backward") else "backward"
    setattr(autograd, name, native.BackwardPass(getattr(autograd, name)))

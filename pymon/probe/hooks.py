"""Where the native hooks go into torch; docs/probe.md says what each counts.

Private names of torch are used only where they exist: what is missing is then not seen, and the rest still works.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from types import ModuleType
from typing import Any


def install(native: Any, torch: ModuleType) -> None:
    """Put the hooks in, for good: they are never taken out, since others may have wrapped them since."""
    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(native.optimizer_pre)
    optimizer.register_optimizer_step_post_hook(native.optimizer_post)
    _wrap_fetch(native, torch)
    _wrap_backward(native, torch)
    graph_task = getattr(torch._C, "_current_graph_task_id", None)
    native.set_torch_state(graph_task, _tracing_mode(torch), torch.Tensor)
    atexit.register(native.publish)
    _pause_between_cells(native)
    if torch.__file__:
        native.set_library_folder(os.path.dirname(torch.__file__) + os.sep)


def _wrap_fetch(native: Any, torch: ModuleType) -> None:
    """`__next__` of the base class: the iterators with and without workers both inherit or call it. `__iter__` of the
    loader starts the workers, where it is not a subclass's own."""
    from torch import multiprocessing
    from torch.utils.data import dataloader

    strategy = getattr(multiprocessing, "get_sharing_strategy", None)
    native.set_loader_questions(getattr(torch, "is_grad_enabled", None), strategy)
    base = getattr(dataloader, "_BaseDataLoaderIter", None)
    if base is not None and hasattr(base, "__next__"):
        base.__next__ = native.DataFetch(base.__next__)
    loader: Any = dataloader.DataLoader
    loader.__iter__ = native.LoaderStart(loader.__iter__)


def _wrap_backward(native: Any, torch: ModuleType) -> None:
    """The engine's own method sees every way into a backward pass, Megatron's and DeepSpeed's direct calls too.

    Where it cannot be replaced, torch's Python functions in front of it. Only one of them: each calls the next.
    """
    autograd: Any = torch.autograd
    variable = getattr(autograd, "Variable", None)
    engine: Any = type(getattr(variable, "_execution_engine", None))
    if variable is not None and hasattr(engine, "run_backward"):
        run_backward = native.BackwardPass(engine.run_backward)
        try:
            watched = type(engine.__name__, (engine,), {"run_backward": run_backward})
            variable._execution_engine = watched()
        except TypeError:  # a torch that lets nobody derive from it
            pass
        else:
            return
    name = "_engine_run_backward" if hasattr(autograd, "_engine_run_backward") else "backward"
    setattr(autograd, name, native.BackwardPass(getattr(autograd, name)))


def _tracing_mode(torch: ModuleType) -> Any:
    """Asks for the mode in which operations are recorded; None where this torch cannot say."""
    ask = getattr(torch._C, "_get_dispatch_mode", None)
    proxy = getattr(getattr(torch._C, "_TorchDispatchModeKey", None), "PROXY", None)
    return None if ask is None or proxy is None else functools.partial(ask, proxy)


def _pause_between_cells(native: Any) -> None:
    """In a notebook: the time until the next cell runs is no part of a step."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.events.register("post_run_cell", lambda *_result: native.pause())

"""Checkpoint saves, timed where torch and the frameworks make them: their time is no step's."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from pymon.probe.on_import import after_import

# Module and what saves in it. Of calls within each other the outermost counts, so that a framework's checkpoint of
# several files is one save.
SAVERS: Final = (
    ("torch.serialization", "save"),
    ("torch.distributed.checkpoint.state_dict_saver", "save"),
    ("torch.distributed.checkpoint.state_dict_saver", "save_state_dict"),
    ("torch.distributed.checkpoint.state_dict_saver", "async_save"),
    ("safetensors.torch", "save_file"),
    ("lightning.pytorch.trainer.trainer", "Trainer.save_checkpoint"),
    ("pytorch_lightning.trainer.trainer", "Trainer.save_checkpoint"),
    ("transformers.trainer", "Trainer._save_checkpoint"),
    ("accelerate.accelerator", "Accelerator.save_state"),
    ("deepspeed.runtime.engine", "DeepSpeedEngine.save_checkpoint"),
)
Listener = Callable[[int, int], None]

_open = threading.local()
_distributed_in: dict[int, int] = {}  # threads that save a distributed checkpoint now
FAILED, SUCCEEDED, GOES_ON = range(3)  # SaveOutcome of csrc/core/step_clock.h


def install(native: Any, listener: Listener) -> None:
    """Wrap all of them, those of modules that are not loaded yet as soon as they are.

    `listener` is given begin and end (CLOCK_MONOTONIC, ns) of each outermost save, in the saving thread, failed ones
    included; of an asynchronous one that is the part that blocks. What it raises is dropped.
    """

    def wrap(module: ModuleType) -> None:
        for name, path in SAVERS:
            if name == module.__name__:
                _wrap(native, module, path, listener)

    for module in dict.fromkeys(name for name, _ in SAVERS):
        after_import(module, wrap)


def _wrap(native: Any, module: ModuleType, path: str, listener: Listener) -> None:
    *owners, name = path.split(".")
    owner: Any = functools.reduce(getattr, owners, module)
    original = getattr(owner, name)
    distributed = module.__name__.startswith("torch.distributed.")
    starts_only = name.startswith("async_")
    timed = timed_save(native, original, listener, distributed, starts_only)
    setattr(owner, name, timed)
    parent = sys.modules.get(module.__name__.rpartition(".")[0])
    if getattr(parent, name, None) is original:  # taken over before we came, as torch.save is
        setattr(parent, name, timed)


def timed_save(
    native: Any,
    original: Any,
    listener: Listener,
    distributed: bool = False,
    starts_only: bool = False,
) -> Any:
    """`original`, timed as a save. `starts_only`: it gives a future, and the save itself is made elsewhere."""

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        me = threading.get_ident()
        if not distributed and _is_part(native):
            return original(*args, **kwargs)
        outermost = not getattr(_open, "inside", False)
        _open.inside = True
        begin_ns = time.monotonic_ns()
        native.save_begin()
        outcome = FAILED
        if distributed:
            _distributed_in[me] = _distributed_in.get(me, 0) + 1
        try:
            result = original(*args, **kwargs)
            outcome = GOES_ON if starts_only else SUCCEEDED
        finally:
            native.save_end(outcome)
            if distributed:
                _distributed_in[me] -= 1
                if not _distributed_in[me]:
                    del _distributed_in[me]
            if outermost:
                _open.inside = False
                with contextlib.suppress(Exception):  # the border to somebody's training
                    listener(begin_ns, time.monotonic_ns())
        if starts_only and "PROCESS" in str(kwargs.get("async_checkpointer_type")):
            _count_when_done(native, result)
        return result

    return save


def _is_part(native: Any) -> bool:
    """A distributed checkpoint calls torch.save for each tensor, in threads of its own, too; the training thread, which
    may be any, saves for itself meanwhile."""
    if not _distributed_in:
        return False
    if training := native.training_tid():
        return bool(threading.get_native_id() != training)
    return threading.current_thread() is not threading.main_thread()


def _count_when_done(native: Any, result: Any) -> None:
    """A save in another process; one in a thread of this process is seen by itself."""
    future = getattr(result, "upload_completion", result)

    def done(future: Any) -> None:
        native.save_begin()
        native.save_end(FAILED if future.exception() else SUCCEEDED)

    if hasattr(future, "add_done_callback"):
        future.add_done_callback(done)

"""Tells who wants to know of each checkpoint that is saved: torch.save, torch.distributed.checkpoint, safetensors.

Only the outermost call counts: distributed checkpoints call torch.save for each tensor, in threads of their own, too.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from pymon.probe.on_import import after_import


class Save(NamedTuple):
    """One save, as it ended. Clocks are CLOCK_MONOTONIC."""

    begin_mono_ns: int
    end_mono_ns: int
    succeeded: bool  # it raised nothing; of an asynchronous one: its part that blocks
    blocks: bool  # the training thread waited for it


Listener = Callable[[Save], None]

_FUNCTIONS = (
    ("torch.serialization", ("save",)),
    ("torch.distributed.checkpoint.state_dict_saver", ("save", "async_save", "save_state_dict")),
    ("safetensors.torch", ("save_file", "save_model")),
)
_listeners: list[Listener] = []
_training_tid: list[Callable[[], int]] = []
_open = threading.local()
_distributed_in: set[int] = set()  # idents of the threads that save a distributed checkpoint now


def watch(torch: Any, training_tid: Callable[[], int], listener: Listener) -> None:
    """From now on `listener` is called in the saving thread, at the end of each save; what it raises is dropped.

    `training_tid` gives the native id of the thread that trains, 0 before it is known.
    """
    _listeners.append(listener)
    if len(_listeners) > 1:
        return
    _training_tid.append(training_tid)
    for module, names in _FUNCTIONS:
        after_import(module, functools.partial(_wrap_all, names))
    torch.save = torch.serialization.save


def _wrap_all(names: tuple[str, ...], module: Any) -> None:
    distributed = module.__name__.startswith("torch.distributed.")
    for name in names:
        if callable(original := getattr(module, name, None)):
            setattr(module, name, _wrapped(original, distributed))


def _wrapped(original: Any, distributed: bool) -> Any:
    """A plain function under the original's name, so that pickling, inspection and torch.compile see no other."""

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        me = threading.get_ident()
        inner = getattr(_open, "inside", False)
        if not inner and not distributed and _distributed_in and not _trains():
            inner = True  # a thread of the distributed checkpoint's own
        if inner:
            return original(*args, **kwargs)
        _open.inside = True
        if distributed:
            _distributed_in.add(me)
        begin_ns, succeeded = time.monotonic_ns(), False
        try:
            result = original(*args, **kwargs)
            succeeded = True
            return result
        finally:
            _open.inside = False
            _distributed_in.discard(me)
            _tell(Save(begin_ns, time.monotonic_ns(), succeeded, _trains()))

    return save


def _trains() -> bool:
    """Whether this thread is the one that trains; before that is known, the main one."""
    training = _training_tid[0]()
    if training:
        return threading.get_native_id() == training
    return threading.current_thread() is threading.main_thread()


def _tell(save: Save) -> None:
    for listener in _listeners:
        with contextlib.suppress(Exception):  # the border to somebody's training
            listener(save)

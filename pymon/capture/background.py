"""Work on a capture's files, on threads of their own that leave the processors to the training."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# Far behind the training (0), before nothing else: 19 would never run on a node whose loaders use every core.
NICENESS = 15
_THREADS = 2  # compressing more files at once would take cores from the training

ResultT = TypeVar("ResultT")


def _step_back() -> None:
    """On Linux a niceness belongs to one thread."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


_WORKERS = ThreadPoolExecutor(_THREADS, "pymon-capture", _step_back)


async def in_background(work: Callable[[], ResultT]) -> ResultT:
    """What `work` gives, or raises."""
    return await asyncio.get_running_loop().run_in_executor(_WORKERS, work)

"""Ends a recording in which an evaluation began.

A recording is bounded by its steps, and an evaluation is a part of one: a thousand batches of it
are millions of events, which nothing tells while they pile up, and which take minutes to stop. It
shows in the batches that the training thread fetches between two boundaries.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any


class FetchWatch:
    """Counts while a recording runs; `on_many` is called in the fetching thread, once."""

    def __init__(self, on_many: Callable[[], None]) -> None:
        self._on_many = on_many
        self._thread = self._fetched = self._most = 0
        self._wrapped: tuple[Any, Any, Any] | None = None

    def start(self, most: int) -> None:
        """From now on, in this thread; more than `most` batches within one step are too many."""
        from torch.utils.data import dataloader

        self._thread, self._fetched, self._most = threading.get_ident(), 0, most
        base = getattr(dataloader, "_BaseDataLoaderIter", None)
        original = vars(base).get("__next__") if base is not None else None
        if original is None:
            return

        @functools.wraps(original)
        def counted(iterator: Any) -> Any:
            self._count()
            return original(iterator)

        setattr(base, "__next__", counted)  # noqa: B010 - mypy knows that a class is not assigned to
        self._wrapped = (base, original, counted)

    def begin_step(self) -> None:
        """A boundary: the next step counts anew."""
        self._fetched = 0

    def stop(self) -> int:
        """Puts everything back; gives the batches of the step that was open."""
        wrapped, self._wrapped = self._wrapped, None
        if wrapped is not None:
            base, original, counted = wrapped
            if vars(base).get("__next__") is counted:  # else somebody else's, left as it is
                base.__next__ = original
        return self._fetched

    def _count(self) -> None:
        if self._wrapped is None or threading.get_ident() != self._thread:
            return
        self._fetched += 1
        if self._fetched == self._most + 1:
            self._on_many()

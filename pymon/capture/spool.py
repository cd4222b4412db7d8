"""Cleaning up in the spool, where trainers of any user write."""

from __future__ import annotations

import contextlib
import os
from itertools import islice
from pathlib import Path

_FILES_MAX = 16  # an order leaves two; whoever put more there may keep them
_FOLDERS_MAX = 10_000  # a start is not held up by somebody who fills the spool


def clear(folder: Path) -> None:
    """Removes what one order left, as far as it may be removed.

    Files only, and never a tree: a hostile trainer could make one too deep to walk.
    """
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with os.scandir(fd) as entries:
                names = [entry.name for entry in islice(entries, _FILES_MAX)]
            for name in names:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)
        folder.rmdir()


def clear_all(spool_dir: Path) -> None:
    """At a daemon's start: what came too late for the one before it."""
    with contextlib.suppress(OSError), os.scandir(spool_dir) as entries:
        folders = [Path(entry.path) for entry in islice(entries, _FOLDERS_MAX)]
        for folder in folders:
            clear(folder)

"""Where the daemon keeps what outlives it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pymon.base.errors import PymonError
from pymon.daemon.config import DEFAULT_STATE_DIR


def state_dir(option: Path | None, configured: str) -> Path:
    """The option's, else the configuration's, else the node's, else the user's. Raises PymonError."""
    if option is not None or configured:
        return _folder(option or Path(configured), 0o755)
    with contextlib.suppress(PymonError):
        return _folder(DEFAULT_STATE_DIR, 0o755)
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return _folder(Path(home, "pymon"), 0o700)


def own(path: Path, mode: int) -> Path:
    """One that belongs to the daemon alone, so its mode is set each time: a private daemon may have made it."""
    folder = _folder(path, mode)
    if folder.stat().st_uid == os.geteuid():
        folder.chmod(mode)
    return folder


def _folder(path: Path, mode: int) -> Path:
    """Makes it with that mode. One that is there keeps its own: it may be /tmp, or set up by an administrator."""
    try:
        if not path.is_dir():
            path.mkdir(parents=True)
            path.chmod(mode)  # whatever the umask says
    except OSError as err:
        raise PymonError(f"{path}: {err.strerror}; choose another with --state-dir DIR") from None
    if not os.access(path, os.W_OK):
        raise PymonError(f"{path}: not writable; choose another with --state-dir DIR")
    return path.absolute()

"""The few errors that cross a part's border; `pymon.cli` alone turns them into exit codes."""

from __future__ import annotations


class PymonError(Exception):
    """Something went wrong that the user can be told in one line."""


class InputError(PymonError):
    """The user's input is at fault (file, option, config key); the text says what and what to do. Exit code 2."""


class SourceAbsent(PymonError):
    """The outside world has no such thing here (no driver, no GPU); the text says why. Not a failure."""


class SourceFailed(PymonError):
    """The thing is there, but reading it failed."""

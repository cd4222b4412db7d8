"""How a command says how far it is: a moving line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.status import Status
from rich.text import Text

PLAIN_EVERY_S = 5.0  # a log wants to see that something moves, not each move


class Progress:
    """`say` leaves a line for good; `now` replaces what moves. A context; `quiet` shows nothing."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._status = Status("", console=console) if console.is_terminal and not quiet else None
        self._last_plain_s = 0.0

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str, style: str = "") -> None:
        """One line that stays."""
        if not self._quiet:
            self._console.print(Text(text, style=style), soft_wrap=True)

    def now(self, text: str) -> None:
        """What goes on at this moment; in a pipe a line every few seconds."""
        if self._quiet:
            return
        if self._status is not None:
            self._status.update(Text(text))
        elif time.monotonic() - self._last_plain_s >= PLAIN_EVERY_S:
            self._last_plain_s = time.monotonic()
            self._console.print(Text(text), soft_wrap=True)

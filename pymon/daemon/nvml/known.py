"""Which GPUs this node had when it was last seen, so that one that is missing after a restart is missed."""

from __future__ import annotations

import json
import logging
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pymon.daemon.cases import write_whole

log = logging.getLogger(__name__)

GPUS_MAX: Final = (
    64  # four times what a node has; a bound against a file that grows with each exchanged GPU
)
Known = tuple[tuple[int, str], ...]  # index and UUID


@dataclass(slots=True)
class KnownGpus:
    """Kept in `path`; nothing is kept where that is None. What another host kept there (a shared home) is not ours."""

    path: Path | None = None
    host: str = field(default_factory=socket.gethostname)
    _kept: Known = ()

    def load(self) -> Known:
        """What was kept; nothing where there is no file, or it is not ours."""
        if self.path is None:
            return ()
        try:
            told = json.loads(self.path.read_text(encoding="utf-8"))
            rows = told["gpus"] if told["host"] == self.host else []
            self._kept = tuple((int(row["index"]), str(row["uuid"])) for row in rows[:GPUS_MAX])
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError) as err:
            log.warning("%s: not read: %s", self.path, err)
        return self._kept

    def keep(self, now: Known) -> None:
        """Writes where something has changed. A disk that is full costs the memory of it, no more."""
        if self.path is None or now == self._kept:
            return
        self._kept = now
        rows = [{"index": index, "uuid": uuid} for index, uuid in now[-GPUS_MAX:]]
        try:
            write_whole(self.path, json.dumps({"host": self.host, "gpus": rows}) + "\n")
        except OSError as err:
            log.warning("%s: not written: %s", self.path, err.strerror)

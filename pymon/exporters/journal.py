"""Incidents, receipts and diagnoses on disk: a SQLite file that one may read while the daemon writes it.

Its own thread writes, from a bounded queue; whatever goes wrong with the disk costs rows, which are counted, and
never the daemon. Not for network file systems: SQLite's write-ahead log needs shared memory.
"""

from __future__ import annotations

import json
import logging
import queue
import sqlite3
import threading
import time
from enum import Enum
from pathlib import Path

log = logging.getLogger(__name__)

QUEUE_MAX = 1000  # minutes of incidents in a storm
_PRUNE_EVERY = 100  # rows between looks at the size
_SCHEMA = """
CREATE TABLE IF NOT EXISTS event (
  id INTEGER PRIMARY KEY,
  real_ns INTEGER NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  body TEXT NOT NULL
)
"""


# A tenth at a time: the file stays near its bound, and few rounds are needed.
_DELETE_OLDEST = """
DELETE FROM event WHERE id IN (
  SELECT id FROM event ORDER BY id LIMIT (SELECT count(*) / 10 + 1 FROM event)
)
"""


class Journal:
    """`max_bytes` bounds the file with its log; the oldest rows go first."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self.dropped_total = 0
        self._queue: queue.Queue[tuple[int, str, str, str] | None] = queue.Queue(QUEUE_MAX)
        self._thread = threading.Thread(target=self._work, name="pymon-journal", daemon=True)
        self._thread.start()

    def add(self, kind: str, name: str, body: object) -> None:
        """One row: `kind` is incident, receipt or diagnosis; `body` anything that JSON can hold."""
        try:
            row = (time.time_ns(), kind, name, json.dumps(body, default=_plain))
            self._queue.put_nowait(row)
        except queue.Full:
            self.dropped_total += 1

    def close(self, timeout_s: float) -> None:
        """Writes what is queued, if that is possible in time."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _work(self) -> None:
        database: sqlite3.Connection | None = None
        written = 0
        while (row := self._queue.get()) is not None:
            try:
                database = database or _open(self._path)
                with database:
                    database.execute(
                        "INSERT INTO event (real_ns, kind, name, body) VALUES (?, ?, ?, ?)", row
                    )
                written += 1
                if written % _PRUNE_EVERY == 1:
                    self._prune(database)
            except (sqlite3.Error, OSError) as err:
                if self.dropped_total == 0:
                    log.warning("journal %s: %s; rows are dropped and counted", self._path, err)
                self.dropped_total += 1
                database = None
        if database is not None:
            database.close()

    def _prune(self, database: sqlite3.Connection) -> None:
        while self._size_bytes() > self._max_bytes:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if self._size_bytes() <= self._max_bytes:
                return  # it was the log alone
            with database:
                gone = database.execute(_DELETE_OLDEST).rowcount
            # `execute` would step it once, which frees one page.
            database.executescript("PRAGMA incremental_vacuum")
            if not gone:
                return

    def _size_bytes(self) -> int:
        files = [self._path, Path(f"{self._path}-wal")]
        return sum(file.stat().st_size for file in files if file.exists())


def _plain(value: object) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, timeout=1.0)
    database.execute("PRAGMA auto_vacuum=INCREMENTAL")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute(_SCHEMA)
    return database

import contextlib
import json
import sqlite3
import time

from pymon.exporters.journal import Journal
from pymon.model.capture import ReceiptStatus
from tests.waiting import PATIENCE_S, until


def rows(path):
    with sqlite3.connect(path) as database:
        return database.execute("SELECT kind, name, body FROM event ORDER BY id").fetchall()


def rows_if_any(path):
    with contextlib.suppress(sqlite3.OperationalError):  # no table yet
        return rows(path)


def test_what_was_added_is_there_after_the_end(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite", 10**6)
    journal.add("receipt", "c1", {"rank": 3, "status": ReceiptStatus.WRITTEN})
    journal.close(PATIENCE_S)

    ((kind, name, body),) = rows(tmp_path / "journal.sqlite")
    assert (kind, name, json.loads(body)) == (
        "receipt",
        "c1",
        {"rank": 3, "status": "written"},
    )


def test_it_goes_on_where_it_stopped(tmp_path):
    for name in ("first", "second"):
        journal = Journal(tmp_path / "journal.sqlite", 10**6)
        journal.add("incident", name, {})
        journal.close(PATIENCE_S)

    assert [name for _, name, _ in rows(tmp_path / "journal.sqlite")] == ["first", "second"]


def test_it_can_be_read_while_it_is_written(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = Journal(path, 10**6)
    journal.add("incident", "one", {})
    assert until(lambda: rows_if_any(path)) == [("incident", "one", "{}")]
    journal.close(PATIENCE_S)


def test_the_oldest_rows_go_where_the_file_grows_too_large(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = Journal(path, 500_000)
    for number in range(1100):
        journal.add("incident", str(number), {"text": "x" * 1000})
        while journal._queue.full():
            time.sleep(0.001)
    journal.close(PATIENCE_S)

    names = [int(name) for _, name, _ in rows(path)]
    assert path.stat().st_size < 700_000  # the bound, and what comes between two looks at it
    assert names == list(range(names[0], 1100))  # none of those between
    assert len(names) > 300  # no more went than had to


def test_a_folder_that_is_gone_costs_rows_and_nothing_else(tmp_path):
    journal = Journal(tmp_path / "none" / "journal.sqlite", 10**6)
    journal.add("incident", "one", {})
    journal.add("incident", "two", {})
    journal.close(PATIENCE_S)

    assert journal.dropped_total == 2


def test_a_full_queue_drops_and_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("pymon.exporters.journal.Journal._work", lambda self: None)  # a hung disk
    journal = Journal(tmp_path / "journal.sqlite", 10**6)
    for _ in range(1003):
        journal.add("incident", "one", {})
    journal.close(0.1)

    assert journal.dropped_total == 3

"""docs/gpu-faults.md names tests that are there, and all that were written for it."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "gpu-faults.md").read_text()
NAMED = set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE))


def defined_in(file):
    return set(re.findall(r"(?m)^def (test_\w+)", (TESTS / file).read_text()))


def test_every_test_that_the_page_names_is_there():
    assert len(NAMED) > 50
    assert [(file, name) for file, name in sorted(NAMED) if name not in defined_in(file)] == []


def test_every_row_names_its_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "fault |" not in line]

    assert [row for row in rows if row.count("::test_") != 1] == []

"""The HTML report: one file, nothing fetched, nothing of the trace becomes markup."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from pymon.model.trace import TraceReport
from pymon.reports.html import render
from tests.reports.doubles import EVIL, facts, gpu_time, report


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("gpu", [None, gpu_time()])
def test_names_never_become_markup_and_nothing_is_fetched(gpu: object) -> None:
    page = render(report(gpu), EVIL)  # type: ignore[arg-type]
    tags = _Tags()
    tags.feed(page)
    assert tags.tags.isdisjoint({"script", "img", "link", "iframe", "object", "base"})
    assert tags.attributes.isdisjoint({"src", "href", "onclick", "onload"})
    assert "default-src 'none'" in page
    assert "url(" not in page
    assert "@import" not in page


def test_it_says_when_nothing_stands_out() -> None:
    page = render(TraceReport((facts(None),), (), ()), "t")
    assert "No known cause" in page
    assert "no GPU events" in page


def test_the_picture_adds_up() -> None:
    page = render(report(gpu_time()), "t")
    widths = [float(piece.split("%")[0]) for piece in page.split('style="width:')[1:]]
    assert sum(widths) == pytest.approx(100)

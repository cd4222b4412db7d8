"""The report of a run: self-contained, escaped, and with a picture of each rank's time."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

from pymon.reports import run_html
from tests.reports.run_summaries import CAPTURE, EMPTY, PROCESS, SUMMARY


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def count(self, tag):
        return sum(name == tag for name, _ in self.found)


def test_says_what_the_terminal_says():
    page = run_html.render(SUMMARY)

    for part in ("1,234", "31.2 ms", "step_slow", "training waits for its input", "num_workers=4"):
        assert part in page


def test_the_peak_of_the_allocator_is_said_where_there_is_one():
    one = dataclasses.replace(PROCESS, allocated_peak_bytes=71 << 30)
    page = run_html.render(dataclasses.replace(SUMMARY, processes=(one,)))
    assert "at most 71.0 GiB of tensors" in page
    assert "of tensors" not in run_html.render(SUMMARY)


def test_one_bar_for_each_rank():
    two = (PROCESS, dataclasses.replace(PROCESS, rank=1))

    assert Tags(run_html.render(dataclasses.replace(SUMMARY, processes=two))).count("svg") == 2


def test_loads_nothing_and_runs_nothing():
    page = Tags(run_html.render(SUMMARY))

    policy = [attrs["content"] for tag, attrs in page.found if "http-equiv" in attrs]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in page.found}


def test_text_of_the_run_is_escaped():
    evil = "<script>alert(1)</script>"
    process = dataclasses.replace(PROCESS, script=evil, ended=evil)
    capture = dataclasses.replace(CAPTURE, capture_id=evil, cause=evil)
    summary = dataclasses.replace(
        SUMMARY, run_id=evil, processes=(process,), captures=(capture,), advice_first=evil
    )

    assert Tags(run_html.render(summary)).count("script") == 0


def test_links_to_a_capture_relative_to_itself():
    links = [attrs["href"] for tag, attrs in Tags(run_html.render(SUMMARY)).found if tag == "a"]

    assert links == ["../../captures/c1/report.html"]


def test_an_empty_run_is_a_page_too():
    page = run_html.render(EMPTY)

    assert "No training process attached." in page
    assert "None was taken." in page

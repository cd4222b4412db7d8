"""What the demo plants, and whether a diagnosis names it."""

from __future__ import annotations

from pathlib import Path

from pymon.model.diagnosis import Diagnosis
from pymon.model.run import RunCapture

TRAIN = Path(__file__).with_name("train.py")
MARK = "# the planted fault"  # stands on the line that the sync fault reads from
RULES = {"data-loader": "input_starved", "sync": "implicit_sync"}
WORDS = {
    "data-loader": "the cache of the dataset is gone, each sample is decoded while the model waits",
    "sync": "the loss of each token is read out one by one, thousands of times a step",
}


def named(capture: RunCapture, fault: str) -> Diagnosis | None:
    """The leading diagnosis if it names the planted fault: its rule, and for sync its very line."""
    first = capture.diagnoses[0] if capture.diagnoses else None
    if first is None or first.rule != RULES[fault]:
        return None
    if fault == "sync" and not _names_the_line(first):
        return None
    return first


def planted_line() -> int:
    """The line of the training script that carries the mark."""
    lines = TRAIN.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if MARK in line)


def _names_the_line(diagnosis: Diagnosis) -> bool:
    return any(
        site.exact_line and site.line == planted_line() and Path(site.file).name == TRAIN.name
        for site in diagnosis.sites
    )

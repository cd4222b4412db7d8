"""What the demo plants, and whether a diagnosis names it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pymon.model.diagnosis import Diagnosis
from pymon.model.finding import Incident
from pymon.model.run import RunCapture

TRAIN = Path(__file__).with_name("train.py")
MARK = "# the planted fault"  # stands on the line that the sync fault reads from
RULES = {"data-loader": "input_starved", "sync": "implicit_sync"}
WORDS = {
    "data-loader": "the cache of the dataset is gone, each sample is decoded while the model waits",
    "sync": "the loss of each token is read out one by one, thousands of times a step",
}


@dataclass(frozen=True, slots=True)
class Planted:
    """When the training planted its fault, by its own word: steps above `step` have it in them."""

    step: int
    real_ns: int

    @classmethod
    def told(cls, log: str) -> Planted | None:
        """None where the training has not said so yet."""
        found = re.search(r"fault planted at step (\d+), (\d+) ns", log)
        return cls(int(found[1]), int(found[2])) if found else None

    def is_in(self, capture: RunCapture) -> bool:
        """Whether all steps of a capture have the fault in them: others show what was before it."""
        firsts = [one.first_step for one in capture.receipts if one.first_step]
        return bool(firsts) and min(firsts) > self.step

    def is_before(self, incident: Incident) -> bool:
        """Whether an incident can be of the fault."""
        return self.real_ns <= incident.began_real_ns


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

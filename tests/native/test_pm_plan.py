"""The metrics of a burst against NVIDIA's own planner, chip by chip: one pass, and which chip lacks what.

The planner needs no GPU up to 13.1; newer ones ask for a driver first.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.native.build import ROOT, built
from tests.native.cupti_wheels import library_of

RELEASES = ("12.8", "12.9", "13.0", "13.1")
NAMES = re.findall(r'\{"(\w+)", "\w+\.', (ROOT / "csrc/gpu/pm_metrics.h").read_text())
NVLINK = {"nvlink_received_bytes", "nvlink_sent_bytes"}
PCIE = {"pcie_read_bytes", "pcie_write_bytes"}
LACKS = {
    "GA100": set(),
    "GA102": set(),
    "AD102": NVLINK,
    "GH100": set(),
    "GB100": PCIE,
    "GB202": NVLINK,
}


@pytest.mark.timeout(600)  # the first one downloads and builds
@pytest.mark.parametrize("release", RELEASES)
def test_one_pass_on_every_chip_from_ampere_on(release):
    library = library_of(release)
    command = [str(built("", "pm_planner") / "pm_planner"), str(library), "TU102", *LACKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert said.pop("TU102") == (
        "the counters take 2 passes on this chip (TU102), and PM sampling has one"
    )
    assert {chip: set(NAMES) - set(words.split()) for chip, words in said.items()} == LACKS
    assert len(NAMES) == 10

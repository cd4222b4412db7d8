"""What pymon adds to the start of a process: the best of a few measurements, since other work can only add to one."""

import pytest

from bench.start_cost import attach_time_ms, boot_time_ms
from pymon import native

TRIES = 5
BOOT_MS = 1.0  # what a Python that never trains may be asked for
ATTACH_MS = 50.0


def best_ms(measure, enough_ms):
    found = measure()
    for _ in range(TRIES - 1):
        if found <= enough_ms:
            break
        found = min(found, measure())
    return found


def test_a_python_that_never_trains_starts_at_most_a_millisecond_later():
    assert best_ms(boot_time_ms, BOOT_MS) <= BOOT_MS


def test_a_training_script_starts_at_most_fifty_milliseconds_later():
    if native.probe()[0] is None:
        pytest.skip(native.probe()[1])
    pytest.importorskip("torch")
    assert best_ms(attach_time_ms, ATTACH_MS) <= ATTACH_MS

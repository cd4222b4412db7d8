"""Waiting for what comes when it comes: tests run on slow machines that have other work."""

import time

PATIENCE_S = 60.0  # far beyond what anything that is awaited takes: it is there to end what hangs


def until(condition, timeout_s=PATIENCE_S, what="it", pause_s=0.02):
    """The condition's first true value; fails the test where none comes in time."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"{what} did not come within {timeout_s:g} s"
        time.sleep(pause_s)
    return value

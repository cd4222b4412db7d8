"""A trainer's memory on its way through a real daemon: scraped while it lives, in the black box when it has died."""

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

from tests.integration.node import until

LEAKING = Path(__file__).with_name("memory_training.py")
GIB = 1 << 30
LEAK_BYTES = 1 << 20


def scraped(node):
    try:
        with urllib.request.urlopen(f"{node.http}/metrics", timeout=30) as page:
            rows = [line.rpartition(" ") for line in page.read().decode().splitlines()]
    except urllib.error.HTTPError:
        return {}  # before the first tick
    return {name: float(value) for name, _, value in rows if name.startswith("pymon_")}


def of(samples, family):
    """The one series of the family; None without."""
    found = [value for name, value in samples.items() if name.startswith(family + "{")]
    return found[0] if found else None


def test_what_an_allocator_held_is_scraped_and_outlives_its_process(node):
    node.daemon("--http", "127.0.0.1:0")
    training = node.train(LEAK_BYTES, script=LEAKING)

    def told():
        now = scraped(node)
        wanted = ("pymon_allocator_allocated_bytes", "pymon_process_unique_memory_bytes")
        return now if all(of(now, family) for family in wanted) else None

    first = until(told, what="the memory")
    assert of(first, "pymon_allocator_reserved_bytes") == 60 * GIB
    assert of(first, "pymon_allocator_retries_total") == 27
    assert of(first, "pymon_allocator_ooms_total") == 0
    assert of(first, "pymon_allocator_allocated_slope_bytes") is None  # too early
    held = of(first, "pymon_allocator_allocated_bytes")
    assert held >= 40 * GIB
    until(lambda: of(scraped(node), "pymon_allocator_allocated_bytes") > held, what="its growth")
    assert 0 < of(first, "pymon_process_unique_memory_bytes") < GIB

    training.send_signal(signal.SIGKILL)
    training.wait()
    command = ("blackbox", training.pid, "--socket", node.socket)
    kept = until(lambda: (done := node.pymon(*command, "--json")).returncode == 0 and done)
    memory = json.loads(kept.stdout)["memory"]
    (allocator,) = memory["allocators"]
    assert allocator["allocated_bytes"] > held
    assert (allocator["reserved_bytes"], allocator["alloc_retries_total"]) == (60 * GIB, 27)
    # The last read was at a step's end, and the double leaks after it.
    leaked = allocator["allocated_bytes"] - 40 * GIB
    assert leaked % LEAK_BYTES == 0
    assert abs(leaked // LEAK_BYTES - allocator["step"]) <= 2
    assert memory["host"]["rss_bytes"] > 0
    text = node.pymon(*command).stdout
    assert "60.0 GiB reserved" in text
    assert "27 retries" in text

"""Hours of a daemon's life in minutes: PYMON_SOAK_S=1800 for the half hour that is ten hours."""

import contextlib
import os
import statistics
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.integration.node import Node
from tests.nvml_double import STATE, NodeDouble, mig_gpu, standard_node
from tests.waiting import until

ASKED_S = float(os.environ.get("PYMON_SOAK_S", "0"))
FAST = Path(__file__).with_name("fast_daemon.py")
LOOK_S = 2.0
# Of the last quarter above the first one after the warm-up. Glibc's arenas and SQLite's cache move by a MiB or two; the
# leaks that exporters had were 400 MiB in two days (NVIDIA/dcgm-exporter#702), 8 MiB an hour.
GROWTH_MAX_MIB = 4.0


def tree(pid):
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, task.read_text().split())
    return found


def look(pid):
    """MiB (PSS) and open descriptors of the daemon with its worker."""
    kib = descriptors = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):  # a worker that is being replaced
            kib += int(Path(f"/proc/{one}/smaps_rollup").read_text().split("Pss:")[1].split()[0])
            descriptors += len(os.listdir(f"/proc/{one}/fd"))
    return kib / 1024, descriptors


@pytest.mark.slow
@pytest.mark.skipif(ASKED_S <= 0, reason="a soak runs when PYMON_SOAK_S says for how many seconds")
@pytest.mark.timeout(ASKED_S + 300)
def test_memory_and_descriptors_stay_flat(tmp_path, monkeypatch):
    state = standard_node(8)
    state["gpus"][7] = mig_gpu(7)
    double = NodeDouble(tmp_path, state)
    monkeypatch.setenv(STATE, str(double.path))
    node = Node(tmp_path)
    try:
        options = ["--nvml-library", str(double.library), "--http", "127.0.0.1:0"]
        pid = node.daemon(*options, program=[str(FAST)]).pid
        seen = watch(pid, node.http, double)
    finally:
        node.end()
    memory, descriptors = zip(*seen[len(seen) // 5 :], strict=True)  # what comes first is warm-up
    quarter = len(memory) // 4
    first, last = statistics.median(memory[:quarter]), statistics.median(memory[-quarter:])
    few, many = (
        statistics.median(part) for part in (descriptors[:quarter], descriptors[-quarter:])
    )
    print(
        f"{ASKED_S:g} s: {first:.1f} -> {last:.1f} MiB (at most {max(memory):.1f}), descriptors "
        f"{few:g} -> {many:g} (at most {max(descriptors)})",
        file=sys.stderr,
    )
    assert last - first < GROWTH_MAX_MIB
    assert many <= few


def watch(pid, url, double):
    """A look each two seconds, while scrapes come and GPUs fail and come back."""
    seen = []
    until_s = time.monotonic() + ASKED_S
    while time.monotonic() < until_s:
        if len(seen) % 30 == 10:
            double.fail("nvmlDeviceGetUtilizationRates", code=15, gpu=len(seen) // 30 % 8)
        elif len(seen) % 30 == 20:
            double.mend()
        for _ in range(4):
            page = until(lambda: scraped(url), what="a page")
            assert b"pymon_gpus_visible" in page or len(seen) < 5
            time.sleep(LOOK_S / 4)
        seen.append(look(pid))
    return seen


def scraped(url):
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/metrics", timeout=5) as page:
        return page.read()
    return None

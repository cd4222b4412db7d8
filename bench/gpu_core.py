"""What the GPU core costs: a CUPTI record from buffer to sums, a publication of the page, the daemon's look at it.

    python bench/gpu_core.py [--seconds 5] [--runs 5] [--json FILE]

On the doubles of libcuda and libcupti, so what CUPTI itself costs is not in here (bench/gpu measures that on a GPU).
Thread CPU time of a pinned thread, medians of 61 rounds of 116,496 records, and of the runs the median; `noise` is the
largest distance of a run from it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import timeit
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
BUILD = ROOT / "build" / "bench"
CSRC = ROOT / "csrc"

# key, what it is, unit, what it may be at most (the aims of the GPU core; None: for comparison)
ROWS = (
    ("record_ns", "a kernel record, from CUPTI's buffer to the sums", "ns", 40.0),
    ("walk_ns", "  of it, walking the buffer (the double's)", "ns", None),
    ("publish_ns", "publishing the page after a typical step", "ns", 120.0),
    ("publish_all_ns", "  with every class of work changed", "ns", None),
    ("snapshot_us", "the daemon's snapshot of it, from Python", "µs", 1.0),
    ("core_ratio_at_50k", "50,000 records a second, share of a core", "", 0.003),
    ("host_mib", "host memory of the layer then", "MiB", 32.0),
    ("mark_ns", "a mark in the training thread, without the driver's part", "ns", None),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of the live run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = measure(arguments.seconds, arguments.runs)
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def measure(seconds: float, runs: int) -> dict[str, float]:
    program = built()
    found: dict[str, list[float]] = {}
    for number in range(runs):
        print(f"run {number + 1} of {runs} ...", file=sys.stderr)
        lines = subprocess.check_output([program, str(seconds)], text=True).splitlines()
        for name, value in [line.split() for line in lines] + [["snapshot_us", snapshot_us()]]:
            found.setdefault(name, []).append(float(value))
    figures = {name: statistics.median(values) for name, values in found.items()}
    for name, values in found.items():
        figures[f"{name}_noise"] = max(abs(value - figures[name]) for value in values)
    return figures


def built() -> Path:
    """The program, as optimised as the modules are, against the doubles under the real libraries' names."""
    BUILD.mkdir(parents=True, exist_ok=True)
    compiler = ["g++", "-std=c++17", "-O2", "-g0", "-pthread", f"-I{CSRC}", "-fPIC"]
    libraries = []
    for folder, name in (("cuda", "libcuda.so.1"), ("cupti", "libcupti.so.13")):
        library = BUILD / name
        source = CSRC / "doubles" / folder / f"{folder}_double.cpp"
        hidden = ["-shared", "-fvisibility=hidden", f"-Wl,-soname,{name}"]
        subprocess.run([*compiler, *hidden, source, "-o", library, "-ldl"], check=True)
        libraries.append(library)
    sources = [*CSRC.glob("core/*.cpp"), *CSRC.glob("gpu/*.cpp"), ROOT / "bench" / "gpu_core.cpp"]
    program = BUILD / "gpu_core"
    linking = ["-Wl,--no-as-needed", *libraries, f"-Wl,-rpath,{BUILD}", "-ldl"]
    subprocess.run([*compiler, *sources, "-o", program, *linking], check=True)
    return program


def snapshot_us() -> float:
    """What `PageReader.cupti` takes in the daemon: the whole state, as bytes."""
    import os

    from pymon import native

    probe, why_not = native.probe()
    tools, why_not_tools = native.tools()
    if probe is None or tools is None:
        sys.exit(why_not or why_not_tools)
    if not hasattr(snapshot_us, "reader"):
        snapshot_us.reader = tools.PageReader(probe.open_page(os.urandom(16)))  # type: ignore[attr-defined]
    read = snapshot_us.reader.cupti  # type: ignore[attr-defined]
    rounds = timeit.repeat(read, timer=time.thread_time, number=2000, repeat=15)
    return statistics.median(rounds) / 2000 * 1e6


def show(figures: dict[str, float]) -> None:
    print(f"{'':58}{'median':>10}   {'± noise':>9}   aim")
    for key, text, unit, aim in ROWS:
        digits = 5 if key == "core_ratio_at_50k" else 2
        value, noise = figures[key], figures[f"{key}_noise"]
        verdict = "" if aim is None else f"≤ {aim:g} {'met' if value <= aim else 'MISSED'}"
        print(f"{text:58}{value:10.{digits}f} {unit:3}{noise:9.{digits}f}   {verdict}")
    print(f"(live run: {figures['live_rate']:.0f} records a second reached)")


if __name__ == "__main__":
    main()

"""What the daemon costs a node of eight GPUs, beside nvitop-exporter on the same double of NVML, in the same windows.

    python bench/node_cost.py [--windows 12] [--json FILE] [--nvitop EXECUTABLE]

All run side by side at one reading a second: pymon as it is by default, pymon with nothing but NVML, nvitop-exporter,
and a second nvitop-exporter, which gives the noise. Processor time is taken from the scheduler for whole process trees;
a ratio is the median over the windows. The double answers in microseconds: what a driver takes is not in here, and
nvitop-exporter's 20 ms waits in PCIe calls cost it no processor time. `nvitop-exporter==1.7.2` is installed into
build/nvitop where no executable is given.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.nvml_double import NodeDouble, standard_node  # noqa: E402

RIVAL = "nvitop-exporter==1.7.2"
GPUS = 8
WINDOW_S = 5.0
WARM_UP_S = 15.0  # past the first slow readings
SCRAPES = 300


@dataclass(frozen=True)
class Exporter:
    """A process tree that serves /metrics."""

    process: subprocess.Popen[bytes]
    url: str

    def pids(self) -> list[int]:
        """Its own and its children's."""
        found = [self.process.pid]
        for pid in found:
            for task in _tasks(pid):
                with contextlib.suppress(OSError):
                    found += map(int, (task / "children").read_text().split())
        return found

    def cpu_s(self) -> float:
        """Time on a processor so far, by the scheduler (/proc/PID/task/*/schedstat)."""
        total_ns = 0
        for pid in self.pids():
            for task in _tasks(pid):
                with contextlib.suppress(OSError):
                    total_ns += int((task / "schedstat").read_text().split()[0])
        return total_ns / 1e9

    def pss_mib(self) -> float:
        """Proportional set size of the tree."""
        rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.pids()]
        return sum(int(text.split("Pss:")[1].split()[0]) for text in rollups) / 1024

    def scrape(self) -> tuple[float, str]:
        """Milliseconds and the page."""
        began_s = time.perf_counter()
        with urllib.request.urlopen(self.url, timeout=10) as page:
            text = page.read().decode()
        return (time.perf_counter() - began_s) * 1e3, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--nvitop", type=Path)
    arguments = parser.parse_args()
    figures = measure(arguments.windows, arguments.nvitop or installed_rival())
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def installed_rival() -> Path:
    """nvitop-exporter in an environment of its own."""
    home = ROOT / "build" / "nvitop"
    if not (home / "bin" / "nvitop-exporter").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", RIVAL], check=True)
    return home / "bin" / "nvitop-exporter"


def measure(windows: int, rival: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        node = training_node(Path(folder), ending)
        exporters = {
            "pymon": pymon(Path(folder, "all"), node, ""),
            "nvml": pymon(Path(folder, "nvml"), node, only_nvml()),
            "nvitop": nvitop(rival, node),
            "nvitop_again": nvitop(rival, node),
        }
        for exporter in exporters.values():
            ending.callback(end, exporter.process)
        for exporter in exporters.values():
            wait_for(exporter)
        time.sleep(WARM_UP_S)
        cores: dict[str, list[float]] = {name: [] for name in exporters}
        for _ in range(windows):
            for name, used_s in window(exporters).items():
                cores[name].append(used_s / WINDOW_S)
        pages = {name: exporter.scrape()[1] for name, exporter in exporters.items()}
        scrapes = {name: scrape_p99_ms(exporters[name]) for name in ("pymon", "nvitop")}
        memory = {name: exporter.pss_mib() for name, exporter in exporters.items()}
    core = {name: statistics.median(values) for name, values in cores.items()}
    return {
        "cpu_ratio_vs_nvitop": ratio(cores["pymon"], cores["nvitop"]),
        "core_ratio": core["pymon"],
        "pss_mib": memory["pymon"],
        "scrape_p99_ms": scrapes["pymon"],
        "series": series(pages["pymon"]),
        "nvml_cpu_ratio_vs_nvitop": ratio(cores["nvml"], cores["nvitop"]),
        "nvml_core_ratio": core["nvml"],
        "nvml_pss_mib": memory["nvml"],
        "nvml_series": series(pages["nvml"]),
        "nvitop_core_ratio": core["nvitop"],
        "nvitop_pss_mib": memory["nvitop"],
        "nvitop_scrape_p99_ms": scrapes["nvitop"],
        "nvitop_series": series(pages["nvitop"]),
        "noise_ratio": ratio(cores["nvitop_again"], cores["nvitop"]),
    }


def training_node(folder: Path, ending: contextlib.ExitStack) -> NodeDouble:
    """Eight GPUs, each with a process that is really there, since nvitop looks its processes up."""
    state = standard_node(GPUS)
    for gpu in state["gpus"]:
        sleeper = subprocess.Popen(["sleep", "infinity"])
        ending.callback(end, sleeper)
        gpu["processes"][0]["pid"] = gpu["process_utilization"][0]["pid"] = sleeper.pid
        gpu["utilization"] = [
            {"start": 50, "per_s": 7, "modulo": 50},
            {"start": 20, "per_s": 3, "modulo": 40},
        ]
    return NodeDouble(folder, state)


def pymon(folder: Path, node: NodeDouble, config: str) -> Exporter:
    folder.mkdir()
    (folder / "pymon.toml").write_text(config)
    command = [sys.executable, "-m", "pymon", "daemon", "--no-kineto", "--http", "127.0.0.1:0"]
    command += ["--config", folder / "pymon.toml", "--socket", folder / "agent.sock"]
    command += ["--state-dir", folder / "state"]
    process = subprocess.Popen(command, cwd=ROOT, env=node.env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return Exporter(
        process, process.stdout.readline().decode().split("http=")[1].strip() + "/metrics"
    )


def only_nvml() -> str:
    from pymon.collectors import all_collectors

    others = [c.name for c in all_collectors(list, list) if c.name != "nvml"]  # type: ignore[arg-type]
    return f"[collectors]\ndisabled = {json.dumps(others)}\n"


def nvitop(rival: Path, node: NodeDouble) -> Exporter:
    port = free_port()
    command = [rival, "--port", str(port), "--interval", "1"]
    process = subprocess.Popen(
        command, env=node.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return Exporter(process, f"http://127.0.0.1:{port}/metrics")


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def wait_for(exporter: Exporter) -> None:
    until_s = time.monotonic() + 30
    while True:
        try:
            exporter.scrape()
            return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < until_s, f"{exporter.url} does not answer"
            time.sleep(0.2)


def window(exporters: dict[str, Exporter]) -> dict[str, float]:
    """Processor seconds of each in one window, with one scrape of each in it."""
    before = {name: exporter.cpu_s() for name, exporter in exporters.items()}
    time.sleep(WINDOW_S / 2)
    for exporter in exporters.values():
        exporter.scrape()
    time.sleep(WINDOW_S / 2)
    return {name: exporter.cpu_s() - before[name] for name, exporter in exporters.items()}


def scrape_p99_ms(exporter: Exporter) -> float:
    """Of scrapes one after the other, spread over several readings."""
    times = []
    for _ in range(SCRAPES):
        times.append(exporter.scrape()[0])
        time.sleep(0.01)
    return statistics.quantiles(times, n=100)[98]


def series(page: str) -> int:
    return sum(1 for line in page.splitlines() if line and not line.startswith("#"))


def ratio(ones: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


def _tasks(pid: int) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from Path(f"/proc/{pid}/task").iterdir()


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def show(figures: dict[str, float]) -> None:
    rows: list[tuple[str, Callable[[str], str]]] = [
        ("core_ratio", lambda name: f"{100 * figures[name]:.2f} %"),
        ("pss_mib", lambda name: f"{figures[name]:.1f} MiB"),
        ("series", lambda name: f"{figures[name]:.0f}"),
        ("scrape_p99_ms", lambda name: f"{figures[name]:.1f} ms" if name in figures else "-"),
    ]
    print(
        f"{GPUS} GPUs, one reading a second{'':9}{'pymon':>12}{'only NVML':>12}{'nvitop 1.7.2':>14}"
    )
    for name, text in rows:
        cells = [text(prefix + name) for prefix in ("", "nvml_", "nvitop_")]
        print(f"  {name:<34}{cells[0]:>12}{cells[1]:>12}{cells[2]:>14}")
    print(
        f"processor time: {figures['cpu_ratio_vs_nvitop']:.2f} of nvitop's, only NVML "
        f"{figures['nvml_cpu_ratio_vs_nvitop']:.2f} of it; two of nvitop differ by {figures['noise_ratio']:.2f}"
    )


if __name__ == "__main__":
    main()

"""What the daemon costs a node of eight GPUs, beside nvitop-exporter on the same double of NVML, in the same windows.

    python bench/node_cost.py [--windows 12] [--json FILE] [--nvitop EXECUTABLE]

All run side by side at one reading a second: pymon as it is by default, pymon with nothing but NVML, nvitop-exporter,
and a second nvitop-exporter, which gives the noise. Processor time is taken from the scheduler for whole process trees;
a ratio is the median over the windows. The double answers in microseconds: what a driver takes is not in here, and
nvitop-exporter's 20 ms waits in PCIe calls cost it no processor time. `nvitop-exporter==1.7.2` is installed into
build/nvitop where no executable is given.

Scrapes are timed apart, over a connection that is kept as Prometheus keeps its own: of a daemon with 2,000 series, and
beside it of a bare asyncio server that sends the same bytes, in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
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
SCRAPES = 1000
SCRAPE_GPUS = 10  # with a series for each of their NVLinks: 2,000


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
        memory = {name: exporter.pss_mib() for name, exporter in exporters.items()}
        nvitop_scrape_ms = scrape_p99_ms(exporters["nvitop"].url)["p99"]
    scrapes = scrapes_of_2000()
    core = {name: statistics.median(values) for name, values in cores.items()}
    return {
        "cpu_ratio_vs_nvitop": ratio(cores["pymon"], cores["nvitop"]),
        "core_ratio": core["pymon"],
        "pss_mib": memory["pymon"],
        "scrape_p99_ms": scrapes["p99"],
        "scrape_median_ms": scrapes["median"],
        "scrape_series": scrapes["series"],
        "floor_scrape_p99_ms": scrapes["floor_p99"],
        "floor_scrape_median_ms": scrapes["floor_median"],
        "series": series(pages["pymon"]),
        "nvml_cpu_ratio_vs_nvitop": ratio(cores["nvml"], cores["nvitop"]),
        "nvml_core_ratio": core["nvml"],
        "nvml_pss_mib": memory["nvml"],
        "nvml_series": series(pages["nvml"]),
        "nvitop_core_ratio": core["nvitop"],
        "nvitop_pss_mib": memory["nvitop"],
        "nvitop_scrape_p99_ms": nvitop_scrape_ms,
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


def scrapes_of_2000() -> dict[str, float]:
    """Of a daemon with 2,000 series and of a bare server with the same bytes, taken in turns."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        node = NodeDouble(Path(folder), standard_node(SCRAPE_GPUS))
        exporter = pymon(Path(folder, "all"), node, "[nvml]\nper_link = true\n")
        ending.callback(end, exporter.process)
        wait_for(exporter)
        time.sleep(WARM_UP_S)
        page = exporter.scrape()[1]
        Path(folder, "page").write_text(page)
        command = [sys.executable, "-c", FLOOR, Path(folder, "page")]
        floor = subprocess.Popen(command, stdout=subprocess.PIPE)
        ending.callback(end, floor)
        assert floor.stdout is not None
        floor_url = f"http://127.0.0.1:{int(floor.stdout.readline())}/metrics"
        times = scrape_p99_ms(exporter.url, floor_url)
    return {**times, "series": series(page)}


# The least that a server written in Python can do: one read, one write.
FLOOR = """
import asyncio, sys
body = open(sys.argv[1], "rb").read()
answer = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body
async def serve(reader, writer):
    while await reader.read(16384):
        writer.write(answer)
        await writer.drain()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def scrape_p99_ms(url: str, floor_url: str | None = None) -> dict[str, float]:
    """Median and 99th percentile over several readings; with a second URL also its own, in turns."""
    urls = [url] + ([floor_url] if floor_url else [])
    connections = [http.client.HTTPConnection(urllib.parse.urlsplit(one).netloc) for one in urls]
    times: list[list[float]] = [[] for _ in urls]
    for _ in range(SCRAPES):
        for connection, of_one in zip(connections, times, strict=True):
            began_s = time.perf_counter()
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            of_one.append((time.perf_counter() - began_s) * 1e3)
        time.sleep(0.02)
    found = {}
    for name, of_one in zip(("", "floor_"), times, strict=False):
        found[f"{name}p99"] = statistics.quantiles(of_one, n=100)[98]
        found[f"{name}median"] = statistics.median(of_one)
    return found


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
    print(
        f"a scrape of {figures['scrape_series']:.0f} series: {figures['scrape_median_ms']:.1f} ms, 99 % within "
        f"{figures['scrape_p99_ms']:.1f}; a bare server {figures['floor_scrape_median_ms']:.1f} and "
        f"{figures['floor_scrape_p99_ms']:.1f}; nvitop 99 % within {figures['nvitop_scrape_p99_ms']:.1f}"
    )


if __name__ == "__main__":
    main()

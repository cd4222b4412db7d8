"""A real daemon at the double, and what is asked of its processes."""

import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.node import Node, Samples
from tests.nvml_double import STATE, NodeDouble
from tests.waiting import until

SCRAPE_S = 1.0  # a scrape must never wait for the driver; what it takes by itself is milliseconds


class Gpus:
    """A node with a daemon, and the double that it reads."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        self.node, self.double = Node(folder), None

    def start(self, state=None, config="", **env):
        self.double = NodeDouble(self.folder, state)
        self.monkeypatch.setenv(STATE, str(self.double.path))
        for name, value in env.items():
            self.monkeypatch.setenv(name, value)
        path = self.folder / "pymon.toml"
        path.write_text(config)
        options = [] if env else ["--nvml-library", str(self.double.library)]
        daemon = self.node.daemon("--http", "127.0.0.1:0", "--config", str(path), *options)
        until(self.is_ready, what="the first tick")
        return daemon

    def is_ready(self):
        try:
            return self.scrape()
        except urllib.error.HTTPError:
            return None

    def scrape(self):
        began_s = time.monotonic()
        with urllib.request.urlopen(f"{self.node.http}/metrics", timeout=5) as page:
            text = page.read().decode()
        assert time.monotonic() - began_s < SCRAPE_S
        return text

    def samples(self):
        found = {
            (s.name, *(v for k, v in s.labels.items() if k not in ("uuid", "version"))): s.value
            for family in text_string_to_metric_families(self.scrape())
            for s in family.samples
        }
        return Samples(found, self.samples)

    def until(self, *wanted, value=1):
        def found():
            samples = self.samples()
            return samples if samples.get(wanted) == value else None

        return until(found, what=f"{wanted} = {value}")


def workers_of(pid):
    """Its NVML workers that live."""
    found = []
    for line in subprocess.run(
        ["ps", "-eo", "pid=,ppid=,stat=,args="], capture_output=True, text=True
    ).stdout.splitlines():
        worker, parent, stat, args = line.split(None, 3)
        if int(parent) == pid and "nvml.worker" in args and not stat.startswith("Z"):
            found.append(int(worker))
    return found


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def ends_in_time(daemon):
    began_s = time.monotonic()
    daemon.terminate()
    code = daemon.wait(5)
    return code == 0 and time.monotonic() - began_s < 5

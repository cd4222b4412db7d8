"""A real daemon at the double: what a scraper and an administrator meet while GPUs go bad."""

import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from shutil import which

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.node import Node, Samples
from tests.nvml_double import STATE, NodeDouble, mig_gpu, standard_node, uuid_of
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


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    gpus = Gpus(tmp_path, monkeypatch)
    yield gpus
    gpus.node.end()


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


@pytest.mark.parametrize("by", ["option", "path"])
def test_the_double_is_found_and_says_so(gpus, by):
    env = {} if by == "option" else {"LD_LIBRARY_PATH": str(NodeDouble(gpus.folder).library.parent)}
    daemon = gpus.start(**env)
    samples = gpus.until("pymon_gpus_visible", value=2)

    assert samples["pymon_build_info", "nvml"] == 1
    assert samples["pymon_gpu_utilization_ratio", "0"] == 0.97
    assert ends_in_time(daemon)


@pytest.mark.parametrize(
    ("fault", "state", "seen"),
    [
        ({"function": "nvmlDeviceGetFieldValues", "hang": True, "gpu": 1}, "hung", "hangs"),
        ({"function": "nvmlDeviceGetHandleByIndex_v2", "hang": True, "gpu": 1}, "hung", "hangs"),
        ({"function": "*", "code": 15, "gpu": 1}, "lost", "errors"),
        ({"function": "*", "code": 16, "gpu": 1}, "reset_required", "errors"),
        ({"function": "*", "code": 4, "gpu": 1}, "no_permission", "errors"),
        ({"function": "nvmlDeviceGetHandleByIndex_v2", "code": 999, "gpu": 1}, "unknown", "errors"),
    ],
)
def test_a_bad_gpu_is_named_and_the_others_are_served_on(gpus, fault, state, seen):
    daemon = gpus.start(standard_node(4), "[nvml]\ncall_timeout_s = 0.5")
    healthy = gpus.until("pymon_gpus_visible", value=4)
    gpus.until("pymon_gpu_gpm_window_seconds", "3", value=pytest.approx(1, abs=0.7))
    if "HandleByIndex" in fault["function"]:  # asked only when the library comes up
        os.kill(workers_of(daemon.pid)[0], signal.SIGKILL)
    gpus.double.fail(**fault)
    samples = gpus.until("pymon_gpu_state", "1", state)

    assert samples["pymon_gpu_up", "1"] == 0
    assert ("pymon_gpus_expected",) in samples

    def are_counted():
        return any(v for k, v in gpus.samples().items() if k[0] == f"pymon_nvml_{seen}_total")

    until(are_counted, what=seen)
    assert not [
        k for k in samples if k[0].endswith(("_ratio", "_bytes", "_watts")) and k[1:2] == ("1",)
    ]
    others = {key for key in healthy if key[1:2] in (("0",), ("2",), ("3",))}
    until(lambda: others <= gpus.samples().keys(), what="all of the healthy GPUs")
    shown = gpus.node.pymon("status", "--socket", gpus.node.socket).stdout
    assert f" {state} " in shown
    assert ends_in_time(daemon)


def test_a_driver_that_hangs_at_the_start_holds_up_neither_scrapes_nor_the_end(gpus):
    state = standard_node()
    state["faults"] = [{"function": "nvmlInitWithFlags", "hang": True}]
    daemon = gpus.start(state, "[nvml]\ninit_timeout_s = 1")
    samples = gpus.until("pymon_nvml_state", "hung")

    assert samples["pymon_nvml_up",] == 0
    assert samples["pymon_collector_up", "host", "ok"] == 1
    workers = workers_of(daemon.pid)
    assert ends_in_time(daemon)
    until(lambda: not any(map(is_alive, workers)), what="the end of the workers")


def test_a_hung_worker_does_not_outlive_a_daemon_that_is_killed(gpus):
    daemon = gpus.start(config="[nvml]\ncall_timeout_s = 60")
    gpus.until("pymon_gpus_visible", value=2)
    gpus.double.fail("nvmlDeviceGetFieldValues", gpu=0, hang=True)
    time.sleep(1.2)
    (worker,) = workers_of(daemon.pid)
    daemon.kill()

    until(lambda: not is_alive(worker), what="the worker's end")


def test_no_driver_is_absent_and_quiet(gpus, monkeypatch):
    daemon = gpus.start(LD_LIBRARY_PATH="/nonexistent")
    samples = gpus.until("pymon_collector_up", "nvml", "absent")

    assert samples["pymon_nvml_up",] == 0
    assert not [key for key in samples if key[0].startswith("pymon_gpu")]
    until(lambda: workers_of(daemon.pid) == [], what="the end of the worker")


def test_release_ends_the_workers_and_the_driver_is_taken_again(gpus):
    daemon = gpus.start()
    gpus.until("pymon_gpus_visible", value=2)
    released = gpus.node.pymon("release", "--socket", gpus.node.socket)

    assert (released.returncode, released.stdout) == (0, "the driver is let go for 600 s\n")
    assert workers_of(daemon.pid) == []
    samples = gpus.until("pymon_nvml_state", "released")
    assert samples["pymon_gpu_state", "0", "unknown"] == 1
    gpus.node.pymon("release", "--socket", gpus.node.socket, "--for-s", "0")
    gpus.until("pymon_gpus_visible", value=2)


def test_switched_off_it_touches_no_driver(gpus):
    daemon = gpus.start(config='[collectors]\ndisabled = ["nvml"]')
    gpus.until("pymon_collector_up", "host", "ok")
    time.sleep(1.5)

    assert "pymon_nvml" not in gpus.scrape()
    assert workers_of(daemon.pid) == []


def test_switched_off_by_a_reload_it_lets_go_of_the_driver(gpus):
    daemon = gpus.start()
    gpus.until("pymon_gpus_visible", value=2)
    (worker,) = workers_of(daemon.pid)
    (gpus.folder / "pymon.toml").write_text('[collectors]\ndisabled = ["nvml"]')
    daemon.send_signal(signal.SIGHUP)

    until(lambda: not is_alive(worker), timeout_s=5, what="the worker's end")
    assert "pymon_nvml" not in until(
        lambda: text if "pymon_nvml" not in (text := gpus.scrape()) else None, what="a page without"
    )


def test_a_large_node_is_served_whole_and_in_time(gpus):
    def crowded(index):
        one = mig_gpu(index)
        one["processes"] = [{"pid": 1000 + n, "bytes": n << 20} for n in range(500)]
        return one

    state = {**standard_node(), "gpus": [crowded(index) for index in range(16)]}
    config = "[prometheus]\nseries_max = 10000\n[nvml]\nprocesses = true\nprocesses_max = 8"
    daemon = gpus.start(state, config)
    gpus.until("pymon_gpus_visible", value=16)

    def whole():
        found = gpus.samples()
        ratios = [key for key in found if key[0] == "pymon_mig_sm_active_ratio"]
        return found if len(ratios) == 16 * 7 else None

    samples = until(whole, what="the activity of all instances")
    assert samples["pymon_gpu_processes", "15"] == 500
    assert len([k for k in samples if k[0] == "pymon_gpu_process_memory_bytes"]) == 16 * 8
    assert samples["pymon_series_dropped_total",] == 0
    assert ends_in_time(daemon)


def test_promtool_finds_nothing_in_the_whole_page(gpus):
    if which("promtool") is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    gpus.start()
    gpus.until("pymon_gpus_visible", value=2)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=gpus.scrape(), text=True, capture_output=True
    )

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    assert re.search(rf'pymon_gpu_info{{gpu="1",uuid="{uuid_of(1)}"', gpus.scrape())

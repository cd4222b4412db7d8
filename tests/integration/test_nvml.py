"""A real daemon at the double: what a scraper and an administrator meet while GPUs go bad."""

import re
import signal
import subprocess
import time
from shutil import which

import pytest

from tests.integration.gpus import ends_in_time, is_alive, workers_of
from tests.nvml_double import NodeDouble, mig_gpu, standard_node, uuid_of
from tests.waiting import until


@pytest.mark.parametrize("by", ["option", "path"])
def test_the_double_is_found_and_says_so(gpus, by):
    env = {} if by == "option" else {"LD_LIBRARY_PATH": str(NodeDouble(gpus.folder).library.parent)}
    daemon = gpus.start(**env)
    samples = gpus.until("pymon_gpus_visible", value=2)

    assert samples["pymon_build_info", "nvml"] == 1
    assert samples["pymon_gpu_utilization_ratio", "0"] == 0.97
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

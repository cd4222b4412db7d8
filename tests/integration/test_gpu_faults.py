"""Bad states before a whole daemon: the healthy GPUs are served whole and in time, the bad one is named, and it ends.

Each call, field and driver is walked through in tests/daemon/nvml; docs/gpu-faults.md lists all.
"""

import os
import re
import signal
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.gpus import SCRAPE_S, ends_in_time, workers_of
from tests.kubelet_double import answer_of, kubelet, pods
from tests.nvml_double import mig_gpu, standard_node, uuid_of
from tests.waiting import until

IMPATIENT = "[nvml]\ncall_timeout_s = 0.5\ninit_timeout_s = 5"
BAD = uuid_of(1)
FIELDS, LOOK_UP = "nvmlDeviceGetFieldValues", "nvmlDeviceGetHandleByIndex_v2"


def series_by_gpu(text):
    """UUID -> family and labels but for the index, which is another after a GPU was unplugged."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("gpu", "uuid")}
            if uuid := sample.labels.get("uuid"):
                found.setdefault(uuid, {})[(sample.name, *sorted(labels.items()))] = sample.value
    return found


def is_whole(text, count=4):
    """Slow readings and activity of every GPU."""
    found = series_by_gpu(text)
    names = [{key[0] for key in series} for series in found.values()]
    wanted = {"pymon_gpu_gpm_window_seconds", "pymon_gpu_clock_hertz"}
    return found if len(found) == count and all(wanted <= one for one in names) else None


def is_healthy(gpus):
    """By the daemon's own word, which is none about the driver."""
    began_s = time.monotonic()
    with urllib.request.urlopen(f"{gpus.node.http}/-/healthy", timeout=5) as answer:
        return answer.status == 200 and time.monotonic() - began_s < SCRAPE_S


def counted(text, name):
    """Whether a counter of that name has counted."""
    return re.search(rf"(?m)^{name}{{.*}} [1-9]", text)


def unplug(state):
    state["gpus"].pop(1)


def cut(state):
    state["gpus"][1] = mig_gpu(1, 3)


def garbage(state):
    bad = state["gpus"][1]
    bad |= {
        "utilization": [4_294_967_295, 101],
        "temperatures": {"0": 65535},
        "event_reasons": 2**63,
    }
    bad["fields"] |= {"186": 2**63, "83": 2**64 - 2, "197": 2**63, "138": 2**63}
    bad["gpm"] = dict.fromkeys(bad["gpm"], -1.0)


@pytest.mark.parametrize(
    ("fault", "state", "counter"),
    [
        ({"function": "*", "code": 15}, "lost", "pymon_nvml_errors_total"),
        ({"function": "*", "code": 16}, "reset_required", "pymon_nvml_errors_total"),
        ({"function": "*", "code": 4}, "no_permission", "pymon_nvml_errors_total"),
        ({"function": "*", "code": 999}, "unknown", "pymon_nvml_errors_total"),
        ({"function": LOOK_UP, "code": 999}, "unknown", "pymon_nvml_errors_total"),
        ({"function": LOOK_UP, "hang": True}, "hung", "pymon_nvml_hangs_total"),
        ({"function": FIELDS, "hang": True}, "hung", "pymon_nvml_hangs_total"),
        ({"function": FIELDS, "latency_ms": 30_000}, "hung", "pymon_nvml_hangs_total"),
        ({"function": FIELDS, "crash": True}, "unknown", None),
        (unplug, "removed", None),
        (garbage, "ok", "pymon_gpu_readings_invalid_total"),
        (cut, "ok", None),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)  # fmt: skip
def test_what_goes_wrong_is_told_in_time_and_the_others_are_whole(gpus, fault, state, counter):
    daemon = gpus.start(standard_node(4), IMPATIENT)
    healthy = until(lambda: is_whole(gpus.scrape()), what="all of the healthy GPUs")
    if callable(fault):
        gpus.double.change(fault)
    else:
        if fault["function"] == LOOK_UP:  # asked only when the library comes up
            os.kill(workers_of(daemon.pid)[0], signal.SIGKILL)
        gpus.double.fail(**fault, gpu=1)

    def is_told():
        text = gpus.scrape()
        bad = series_by_gpu(text).get(BAD, {})
        is_seen = bad.get(("pymon_gpu_state", ("state", state))) == 1
        return is_seen and (counter is None or counted(text, counter)) and bad

    bad = until(is_told, what=state)
    assert bad[("pymon_gpu_up",)] == (state == "ok")
    if state != "ok":
        assert not [key for key in bad if key[0].endswith(("_ratio", "_bytes", "_watts"))]

    def are_others_whole():
        found = series_by_gpu(gpus.scrape())
        return all(
            series.keys() <= found.get(uuid, {}).keys()
            for uuid, series in healthy.items()
            if uuid != BAD
        )

    until(are_others_whole, what="all of the healthy GPUs")
    assert is_healthy(gpus)
    assert f" {state} " in gpus.node.pymon("status", "--socket", gpus.node.socket).stdout
    assert ends_in_time(daemon)


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        ({"function": "*", "code": 999}, "failed"),
        ({"function": "*", "code": 9}, "no_driver"),
        ({"function": "*", "code": 18}, "version_mismatch"),
        ({"function": "*", "hang": True}, "hung"),
    ],
)
def test_a_driver_that_is_gone_for_all_is_told_and_the_host_is_served_on(gpus, fault, state):
    daemon = gpus.start(config=IMPATIENT)
    gpus.until("pymon_gpus_visible", value=2)
    gpus.double.fail(**fault)
    samples = gpus.until("pymon_nvml_state", state)

    assert samples["pymon_nvml_up",] == samples["pymon_gpus_visible",] == 0
    assert samples["pymon_gpus_expected",] == 2
    assert samples["pymon_collector_up", "host", "ok"] == 1
    assert not [key for key in samples if key[0] == "pymon_gpu_utilization_ratio"]
    assert is_healthy(gpus)
    assert ends_in_time(daemon)


def test_events_that_hang_cost_the_events_only(gpus):
    daemon = gpus.start(config=IMPATIENT)
    gpus.until("pymon_gpu_xid_watch_up", "nvml")
    gpus.double.fail("nvmlEventSetWait_v2", hang=True)
    gpus.until("pymon_gpu_xid_watch_up", "nvml", value=0)
    gpus.until("pymon_gpus_visible", value=2)

    assert counted(gpus.scrape(), "pymon_nvml_hangs_total")
    assert ends_in_time(daemon)


def test_an_xid_is_on_the_page_with_its_gpu_and_time(gpus):
    state = standard_node()
    state["events"] = [
        {"at_s": 0, "gpu": 1, "xid": 999},
        {"at_s": 0, "gpu": 1, "xid": 31, "count": 3000},
    ]
    daemon = gpus.start(state)
    samples = gpus.until("pymon_gpu_xid_events_total", "1", "31", "nvml", value=3000)

    assert samples["pymon_gpu_xid_events_total", "1", "999", "nvml"] == 1
    assert samples["pymon_gpu_xid_last_timestamp_seconds", "1", "31"] == pytest.approx(
        time.time(), abs=120
    )
    assert ends_in_time(daemon)


def holders_of(library, pids):
    """Those of the processes that have the file mapped."""
    return [pid for pid in pids if str(library) in Path(f"/proc/{pid}/maps").read_text()]


def test_only_the_worker_holds_the_library_and_it_lets_go(gpus):
    daemon = gpus.start()
    gpus.until("pymon_gpus_visible", value=2)
    (worker,) = workers_of(daemon.pid)
    assert holders_of(gpus.double.library, (daemon.pid, worker)) == [worker]

    assert gpus.node.pymon("release", "--socket", gpus.node.socket).returncode == 0
    assert workers_of(daemon.pid) == []
    assert holders_of(gpus.double.library, [daemon.pid]) == []


@pytest.mark.parametrize("answer", [b"", b"\xff" * 5_000_000, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_kubelet_that_answers_nonsense_costs_the_pods_names_only(gpus, answer):
    with kubelet(gpus.folder / "kubelet.sock", answer) as path:
        daemon = gpus.start(config=f'[host]\nkubelet = "{path}"\n')
        gpus.until("pymon_collector_up", "pods", "failed")
        assert until(lambda: is_whole(gpus.scrape(), 2), what="all of the GPUs")
        assert ends_in_time(daemon)


def test_a_list_of_pods_of_more_than_four_mebibytes_is_read(gpus):
    """Where clients of gRPC by default refuse it, and have lost all GPUs with it."""
    others = pods((b"ml", b"pod", b"c", b"example.com/nic", b"x" * 100)) * 35_000
    answer = answer_of(others + pods((b"ml", b"p", b"c", b"nvidia.com/gpu", BAD.encode())))
    assert len(answer) > 4 * 1024**2
    with kubelet(gpus.folder / "kubelet.sock", answer) as path:
        gpus.start(config=f'[host]\nkubelet = "{path}"\n')
        gpus.until("pymon_pod_gpu_info", "ml", "p", "c")
        assert until(lambda: is_whole(gpus.scrape(), 2), what="all of the GPUs")

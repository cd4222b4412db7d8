"""Kind `counters`: orders to probes, and the file that comes back, which anything may stand in."""

import asyncio
import json
import os

import pytest

from pymon.base.errors import InputError
from pymon.capture import counter_file
from pymon.link import wire
from pymon.model.capture import CaptureKind, CaptureRequest
from pymon.sources.kineto import KinetoProcess

BURST = {
    "version": 1,
    "device": "NVIDIA H200",
    "chip": "GH100",
    "duration_s": 2.0,
    "samples_total": 4000,
    "samples_lost": 3,
    "samples_cut": 1,
    "overflows": 1,
    "absent": ["nvlink_sent_bytes"],
    "summary": {
        "sm_active_ratio": {"mean": 0.5, "max": 0.9},
        "dram_bytes": {"total": 2e12, "per_s": 1e12},
        "sm_clock_hz": {"mean": 1.5e9, "max": 1.5e9},
        "from_a_newer_probe": {"mean": 1.0, "max": 1.0},
    },
    "sm_clock_before_hz": 1.98e9,
    "sm_clock_after_hz": None,
    "end_s": [],
    "samples": {},
}


def burst_of(node, *pids, seconds=2.0):
    request = CaptureRequest("c1", pids, 0, "manual", 0, None, CaptureKind.COUNTERS, seconds)
    return asyncio.run(node.manager.capture(request))


def obeying(node, content=BURST):
    def send(attach_id, order):
        node.orders.orders.append((attach_id, order))
        path = os.path.join(order.spool, f"{order.capture_id}-{attach_id}")
        os.mkdir(path)
        with open(os.path.join(path, "counters.json"), "w") as file:
            json.dump(content, file)
        receipt = wire.Receipt(order.capture_id, "written", files=["counters.json"], took_s=2.5)
        asyncio.get_running_loop().call_soon(node.manager.receipt, attach_id, receipt)
        return True

    node.orders.send = send


def test_a_burst_ends_in_a_folder_with_its_file_and_manifest(node, tmp_path):
    obeying(node)
    (receipt,) = burst_of(node, 100)

    assert (receipt.kind.value, receipt.status.value) == ("counters", "written")
    (file,) = receipt.files
    assert (file.name, file.kind) == ("rank0-pid100.counters.json", "counters")
    manifest = json.loads((tmp_path / "captures" / "c1" / "manifest.json").read_text())
    assert (manifest["request"]["kind"], manifest["request"]["burst_s"]) == ("counters", 2.0)
    assert list((tmp_path / "spool").iterdir()) == []


def test_the_order_is_one_of_counters_and_is_bounded(node):
    obeying(node)
    burst_of(node, 100, seconds=3600.0)

    ((_, order),) = node.orders.orders
    assert isinstance(wire.decode(wire.encode(order)), wire.CountersOrder)
    assert order.seconds == 10.0


def test_a_process_without_a_probe_is_refused(node):
    node.manager.kineto.known = (KinetoProcess(7, os.getuid(), True, 0.0),)
    (receipt,) = burst_of(node, 7)

    assert receipt.status.value == "refused"
    assert "sampled by the probe" in receipt.reason


def test_a_probe_that_never_answers_ends_in_a_receipt(node, monkeypatch):
    monkeypatch.setattr("pymon.capture.counters.ANSWER_SLACK_S", 0.1)
    node.orders.answer = "silence"

    def silent(attach_id, order):
        return True

    node.orders.send = silent
    (receipt,) = burst_of(node, 100, seconds=0.1)

    assert (receipt.status.value, receipt.reason) == ("failed", "no answer within 0 s")
    assert node.manager.under_way == ""


def test_the_means_of_a_file_and_what_its_chip_does_not_count(tmp_path):
    path = tmp_path / "rank0-pid7.counters.json"
    path.write_text(json.dumps(BURST))
    burst = counter_file.read(path, 7)

    assert (burst.pid, burst.chip, burst.samples_lost, burst.overflows) == (7, "GH100", 3, 1)
    assert (burst.sm_active_ratio, burst.dram_bytes_per_s) == (0.5, 1e12)
    assert (burst.sm_clock_hz, burst.sm_clock_before_hz) == (1.5e9, 1.98e9)
    assert burst.nvlink_sent_bytes_per_s is None
    assert burst.sm_clock_after_hz is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 1}',
        "[" * 100_000,
        json.dumps({**BURST, "version": 2}),
        json.dumps({**BURST, "samples_lost": "many"}),
        json.dumps(BURST).replace(" 1000000000000.0", " 1e999"),
        json.dumps(BURST).replace("0.5", "NaN"),
    ],
)
def test_what_is_no_burst_is_said_to_be_none(tmp_path, text):
    path = tmp_path / "x.counters.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"^x\.counters\.json: "):
        counter_file.read(path, 7)


def test_names_end_on_somebodys_terminal(tmp_path):
    path = tmp_path / "x.counters.json"
    path.write_text(json.dumps({**BURST, "device": "\x1b[2J" + "x" * 1000}))

    assert counter_file.read(path, 7).device == "?[2J" + "x" * 60

import asyncio
import json
import os
from dataclasses import replace

import pytest

from pymon.capture.budget import CaptureSettings
from pymon.capture.torch_profile import first_steps
from pymon.link import wire
from pymon.model.capture import CaptureRequest
from pymon.sources.kineto import KinetoProcess
from tests.detectors.histories import PROCESS

ONE = replace(PROCESS, uid=os.getuid(), steps_total=100, new_median_s=0.1)


def test_a_capture_ends_in_a_folder_with_trace_and_manifest(node, tmp_path):
    (receipt,) = node.capture(100)

    assert receipt.status.value == "written"
    assert [file.name for file in receipt.files] == ["rank0-pid100.trace.json.gz"]
    manifest = json.loads((tmp_path / "captures" / "c1" / "manifest.json").read_text())
    assert manifest["request"]["cause"] == "manual"
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_pid_that_nobody_knows_is_refused_with_advice_and_the_others_are_captured(node):
    receipts = {r.pid: r for r in node.capture(100, 4711)}

    assert receipts[100].status.value == "written"
    assert receipts[4711].status.value == "refused"
    assert "pymon run" in receipts[4711].reason


def test_without_any_process_the_request_still_ends_in_a_receipt(node):
    node.orders.processes = ()

    (receipt,) = node.capture()

    assert (receipt.status.value, receipt.pid) == ("refused", 0)


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        ("refused", "refused", ""),
        ("missed", "missed", ""),
        ("nonsense", "failed", ""),
        ("death", "failed", "the process ended"),
    ],
)
def test_whatever_a_trainer_answers_it_is_one_receipt_and_no_folder(node, answer, status, reason):
    node.orders.answer = answer

    (receipt,) = node.capture(100)

    assert receipt.status.value == status
    assert receipt.reason.startswith(reason)
    assert node.folders() == []


def test_a_trainer_that_claims_a_trace_and_wrote_none_has_failed(node):
    node.orders.answer = "written"
    send = node.orders.send

    def lying(attach_id, order):
        sent = send(attach_id, order)
        folder = os.path.join(order.spool, f"{order.capture_id}-{attach_id}")
        os.unlink(os.path.join(folder, "trace.json"))
        return sent

    node.orders.send = lying
    (receipt,) = node.capture(100)

    assert receipt.status.value == "failed"
    assert "could not be taken over" in receipt.reason


def test_silence_and_a_gone_process_end_in_receipts(node, monkeypatch):
    monkeypatch.setattr("pymon.capture.torch_profile.ANSWER_SLACK_S", 0.1)
    node.orders.answer = "silence"
    assert "no answer within" in node.capture(100)[0].reason

    node.orders.gone = True
    assert node.capture(100)[0].reason == "the process is gone"


def test_one_cause_cools_down_and_people_need_not_wait(node):
    assert node.capture(100, cause="step_slow:a")[0].status.value == "written"
    assert "in cooldown" in node.capture(100, cause="step_slow:a")[0].reason
    assert node.capture(100, cause="manual")[0].status.value == "written"
    assert node.capture(100, cause="manual")[0].status.value == "written"
    node.clock.now_s += 301
    assert node.capture(100, cause="step_slow:a")[0].status.value == "written"


def test_one_capture_at_a_time(node):
    async def two():
        requests = [CaptureRequest(f"d{n}", (100,), 3, "manual", 0) for n in range(2)]
        return await asyncio.gather(*map(node.manager.capture, requests))

    first, second = asyncio.run(two())

    assert first[0].status.value == "written"
    assert "one at a time" in second[0].reason


def test_a_disk_that_is_short_is_the_reason(node):
    node.manager.change(CaptureSettings(min_free_bytes=1 << 60))

    assert "must be" in node.capture(100)[0].reason


def test_ranks_of_a_job_begin_at_one_step_and_one_alone_at_once():
    ranks = [
        replace(ONE, attach_id=str(n), rank=n, world_size=2, steps_total=100 + n) for n in range(2)
    ]
    alone = replace(ONE, attach_id="alone", job_id="other")

    first = first_steps([*ranks, alone])

    assert first["0"] == first["1"] > 101 + 15  # the order takes 1.5 s, fifteen steps here
    assert first["alone"] == 0


def test_a_slow_process_is_given_the_time_its_steps_take(node):
    quick, slow = ONE, replace(ONE, new_median_s=None, open_step_age_s=15.0)
    for process in (quick, slow):
        node.orders.processes = (process,)
        assert node.capture(100)[0].status.value == "written"

    (_, of_quick), (_, of_slow) = node.orders.orders
    assert of_quick.max_s < 10
    assert of_slow.max_s > 15 * (of_slow.steps + 4)  # one that is open, three of sizing


def test_a_process_that_kineto_knows_and_a_probe_too_is_captured_by_the_probe(node):
    node.manager.kineto.known = (KinetoProcess(100, os.getuid(), True, 0.0),)

    (receipt,) = node.capture()

    assert receipt.kind.value == "torch"


def test_a_hostile_receipt_is_cut_to_what_can_be(node):
    def hostile(attach_id, order):
        receipt = wire.Receipt(
            order.capture_id,
            "refused",
            "\x1b[2Jgone\n",
            first_step=-7,
            steps=10**9,
            took_s=float("nan"),
        )
        asyncio.get_running_loop().call_soon(node.manager.receipt, attach_id, receipt)
        return True

    node.orders.send = hostile
    (receipt,) = node.capture(100)

    assert receipt.reason == " [2Jgone "
    assert (receipt.first_step, receipt.steps, receipt.took_s) == (None, 50, 0.0)


def test_a_receipt_of_another_process_or_of_another_capture_is_nobodys(node, monkeypatch):
    monkeypatch.setattr("pymon.capture.torch_profile.ANSWER_SLACK_S", 0.1)

    def confused(attach_id, order):
        loop = asyncio.get_running_loop()
        loop.call_soon(node.manager.receipt, "stranger", wire.Receipt(order.capture_id, "written"))
        loop.call_soon(node.manager.receipt, attach_id, wire.Receipt("c0", "written"))
        loop.call_soon(node.manager.lost, "stranger")
        return True

    node.orders.send = confused

    assert "no answer within" in node.capture(100)[0].reason


def test_a_second_receipt_changes_nothing(node):
    def twice(attach_id, order):
        loop = asyncio.get_running_loop()
        for status in ("missed", "written"):
            receipt = wire.Receipt(order.capture_id, status, "step 4 is over")
            loop.call_soon(node.manager.receipt, attach_id, receipt)
        return True

    node.orders.send = twice

    assert node.capture(100)[0].status.value == "missed"


def test_a_tree_too_deep_to_walk_costs_the_capture_nothing(node):
    send, made = node.orders.send, []

    def deep(attach_id, order):
        sent = send(attach_id, order)
        path = os.path.join(order.spool, f"{order.capture_id}-{attach_id}")
        for _ in range(1500):
            path += "/a"
            os.mkdir(path)
            made.append(path)
        return sent

    node.orders.send = deep
    try:
        assert node.capture(100)[0].status.value == "written"
    finally:
        for path in reversed(made):
            os.rmdir(path)


def test_a_capture_that_is_whole_counts_though_an_older_one_cannot_be_removed(node, monkeypatch):
    def broken(captures_dir, quota_bytes):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pymon.capture.manager.keep_within", broken)

    assert node.capture(100)[0].status.value == "written"
    assert node.folders() == ["c1"]


def test_a_capture_that_cannot_be_kept_has_failed_and_leaves_nothing(node, tmp_path, monkeypatch):
    monkeypatch.setattr("pymon.capture.bundle.json.dumps", full_disk)

    (receipt,) = node.capture(100)

    assert (receipt.status.value, receipt.files) == ("failed", ())
    assert receipt.reason == "the capture could not be kept: No space left on device"
    assert node.folders() == []
    assert list((tmp_path / "spool").iterdir()) == []


def full_disk(*_, **__):
    raise OSError(28, "No space left on device")


def test_captures_folder_that_cannot_be_written_refuses_all(node, tmp_path):
    (tmp_path / "captures" / ".tmp-c1").mkdir()  # a capture of that name is being made by somebody

    (receipt,) = node.capture(100)

    assert (receipt.status.value, node.manager.under_way) == ("refused", "")
    assert "cannot be written" in receipt.reason


def test_a_request_that_is_given_up_lets_the_next_one_begin(node):
    node.orders.answer = "silence"

    async def given_up():
        request = CaptureRequest("d1", (100,), 3, "manual", 0)
        await asyncio.wait_for(node.manager.capture(request), 0.05)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(given_up())
    node.orders.answer = "written"

    assert node.capture(100)[0].status.value == "written"

import asyncio
import os

import pytest

from pymon.daemon import cases as module
from pymon.daemon.peers import Peer
from pymon.daemon.requests import Requests, fitting
from pymon.link import wire
from pymon.model.trace import TraceReport
from tests.daemon.flow import DetectorDouble, finding, pipeline, process

ROOT = Peer(1, 0)
OWNER = Peer(2, 1000)
STRANGER = Peer(3, 1001)


class ServerDouble:
    someone_ended = False


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """Answers after one tick, of a daemon whose user is nobody in particular."""
    monkeypatch.setattr(os, "geteuid", lambda: 500)
    monkeypatch.setattr(module, "diagnose", lambda paths: TraceReport((), (), ()))
    flow = pipeline(tmp_path, detectors=[DetectorDouble(says=[finding()])], automatic=False)
    server = ServerDouble()
    requests = Requests(flow, server, tmp_path / "agent.sock", tmp_path, "off")

    def ask(peer, command, **fields):
        async def main():
            await flow.tick()
            return [reply async for reply in requests.answer(peer, wire.Request(command, **fields))]

        replies = asyncio.run(main())
        assert [reply.last for reply in replies] == [False] * (len(replies) - 1) + [True]
        return [wire.decode(wire.encode(reply)) for reply in replies]

    ask.flow, ask.server, ask.folder = flow, server, tmp_path
    return ask


def test_status_tells_what_the_daemon_sees(daemon):
    (reply,) = daemon(STRANGER, "status")

    assert reply.body["processes"][0]["pid"] == 100
    assert reply.body["incidents"][0]["summary"] == "a step takes 0.2 s"
    assert reply.body["collectors"] == [{"name": "processes", "state": "ok", "reason": ""}]
    assert (reply.body["http"], reply.body["captures"]) == ("off", [])


def test_status_tells_of_a_capture_under_way_and_of_one_that_is_over(daemon):
    flow = daemon.flow
    begun = asyncio.Event()

    async def main():
        original = flow.cases.captures.capture

        async def slow(request):
            flow.cases.captures.under_way = request.capture_id
            await begun.wait()
            flow.cases.captures.under_way = ""
            return await original(request)

        flow.cases.captures.capture = slow
        requests = Requests(flow, daemon.server, daemon.folder / "s", daemon.folder, "off")
        task = flow.cases.start((100,), 3, "manual")
        await asyncio.sleep(0)
        during = requests._status()["captures"]
        begun.set()
        await task
        await asyncio.sleep(0)
        return during, requests._status()["captures"]

    during, after = asyncio.run(main())
    assert [row["under_way"] for row in during] == [True]
    assert [row["under_way"] for row in after] == [False]
    assert during[0]["capture_id"] == after[0]["capture_id"]


def test_a_capture_tells_that_it_runs_and_then_how_it_ended(daemon):
    first, last = daemon(OWNER, "capture", pids=[100], steps=5)

    assert first.text == "capturing 5 steps of 100"
    assert daemon.flow.cases.captures.requests[0].cause == "manual"
    assert last.body["receipts"][0]["status"] == "written"
    assert last.body["folder"].endswith(last.body["capture_id"])
    assert last.body["report"].endswith("report.html")


@pytest.mark.parametrize(("steps", "taken"), [(-5, 1), (0, 1), (10**9, 1000)])
def test_absurd_numbers_of_steps_are_bounded(daemon, steps, taken):
    daemon(OWNER, "capture", pids=[100], steps=steps)

    assert daemon.flow.cases.captures.requests[0].steps == taken


def test_nobody_captures_another_users_process(daemon):
    for pids in ([100], []):
        (reply,) = daemon(STRANGER, "capture", pids=pids)
        assert not reply.ok
    assert daemon.flow.cases.captures.requests == []


def test_all_means_ones_own_to_a_user_and_everything_to_root(daemon):
    daemon.flow.runner.processes = (process(), process(attach_id="b" * 32, pid=200, uid=1001))

    daemon(OWNER, "capture")
    daemon(ROOT, "capture")
    assert [request.pids for request in daemon.flow.cases.captures.requests] == [(100,), ()]


def test_a_summary_is_told_and_written(daemon):
    (reply,) = daemon(OWNER, "summary", run_id="r1")

    assert reply.body["processes"][0]["pid"] == 100
    assert reply.body["report_path"] == str(daemon.folder / "runs" / "r1" / "report.html")
    assert (daemon.folder / "runs" / "r1" / "report.html").exists()


def test_a_summary_of_another_users_run_is_refused(daemon):
    for run_id in ("r1", ""):
        (reply,) = daemon(STRANGER, "summary", run_id=run_id)
        assert not reply.ok
    assert not (daemon.folder / "runs").exists()


def test_invented_runs_write_nothing(daemon):
    (reply,) = daemon(STRANGER, "summary", run_id="../../etc")

    assert (reply.ok, reply.body["processes"], reply.body["report_path"]) == (True, [], None)
    assert not (daemon.folder / "runs").exists()


def test_a_run_that_names_a_path_stays_in_its_folder(daemon):
    daemon.flow.runner.processes = (process(run_id="../../x"),)
    (reply,) = daemon(OWNER, "summary", run_id="../../x")

    assert reply.body["report_path"] == str(daemon.folder / "runs" / "------x" / "report.html")


def test_a_full_disk_costs_the_page_and_not_the_summary(daemon):
    (daemon.folder / "runs").write_text("in the way")
    (reply,) = daemon(OWNER, "summary", run_id="r1")

    assert reply.body["report_path"] is None
    assert len(reply.body["processes"]) == 1


def test_an_unknown_command_is_refused_by_its_name(daemon):
    (reply,) = daemon(OWNER, "reboot")

    assert (reply.ok, reply.text) == (False, "unknown command 'reboot'")


def test_what_is_too_large_loses_its_oldest_rows_and_says_so():
    rows = [{"capture_id": f"c{number}", "text": "x" * 1000} for number in range(256)]
    reply = fitting(wire.Reply(last=True, body={"captures": rows, "processes": [{"pid": 1}]}))

    wire.encode(reply)
    assert reply.body["captures"][-1]["capture_id"] == "c255"
    assert len(reply.body["captures"]) == 32
    assert reply.body["processes"] == [{"pid": 1}]
    assert reply.text == "too much for one answer, left out: 224 captures"


def test_counters_are_asked_for_by_people_and_of_their_own_processes(daemon):
    refused = daemon(STRANGER, "counters", pids=[100], for_s=2.0)[-1]
    assert (refused.ok, refused.text) == (False, "that process belongs to another user")

    began, ended = daemon(OWNER, "counters", pids=[100], for_s=2.0)
    assert began.text == ("sampling counters of the GPUs of 100; their clocks are locked meanwhile")
    assert ended.body["counters"] == []
    (request,) = daemon.flow.cases.captures.requests
    assert (request.kind.value, request.burst_s, request.cause) == ("counters", 2.0, "manual")

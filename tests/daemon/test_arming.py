import asyncio
import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from pymon.daemon import arming as module
from pymon.daemon.arming import Arming, switch
from pymon.daemon.peers import Peer
from pymon.link import layout, wire

ROOT, ALICE, BOB = Peer(1, 0), Peer(2, 1000), Peer(3, 1001)


@pytest.fixture(autouse=True)
def _daemon_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 500)
    monkeypatch.setattr(module, "OBEY_S", 0.3)


def test_it_outlives_the_daemon(tmp_path):
    Arming.load(tmp_path / "d.json").disarm(ROOT, "7")
    again = Arming.load(tmp_path / "d.json")

    assert again.holds(1000, "7")
    assert not again.holds(1000, "8")
    again.arm(ROOT, "7")
    assert not Arming.load(tmp_path / "d.json").holds(1000, "7")


def test_users_reach_their_own_processes_only():
    arming = Arming()
    assert arming.disarm(ALICE, "") == ""
    assert arming.holds(1000, "7")
    assert not arming.holds(1001, "7")
    arming.disarm(ROOT, "")
    assert arming.arm(ALICE, "") == ""
    assert arming.holds(1000, "7")  # what root has said still holds
    assert arming.arm(ROOT, "") == ""
    assert not arming.holds(1000, "7")


def test_to_take_back_what_does_not_hold_is_told():
    arming = Arming()
    arming.disarm(BOB, "7")
    assert "no disarm of job 7" in arming.arm(ALICE, "7")
    assert arming.holds(1001, "7")


def test_twice_is_once_and_there_is_a_bound(monkeypatch):
    monkeypatch.setattr(module, "RULES_MAX", 2)
    arming = Arming()
    assert [arming.disarm(ALICE, job) for job in ("1", "1", "2")] == [""] * 3
    assert "2 rules hold already" in arming.disarm(ALICE, "3")


def test_a_full_disk_does_not_keep_anybody_from_switching_off(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    arming = Arming.load(tmp_path / "d.json")

    assert "not over a restart" in arming.disarm(ROOT, "")
    assert arming.holds(1000, "7")


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"uid": "x"}]', b"\xff"])
def test_a_file_of_nonsense_disarms_nothing_and_is_told(tmp_path, content, caplog):
    (tmp_path / "d.json").write_bytes(content)
    assert not Arming.load(tmp_path / "d.json").holds(0, "")
    assert "nothing is disarmed" in caplog.text


@dataclass
class ServerDouble:
    """Probes that obey, or do not."""

    arming: Arming
    attachments: dict = field(default_factory=dict)

    def add(self, pid, uid, job, obeys=True):
        one = SimpleNamespace(pid=pid, uid=uid, hello=SimpleNamespace(job_id=job), shed=0)
        one.page = SimpleNamespace(train=lambda: SimpleNamespace(shed=one.shed))
        one.obeys = obeys
        self.attachments[str(pid)] = one

    def welcome_again(self):
        for one in self.attachments.values():
            if one.obeys:
                holds = self.arming.holds(one.uid, one.hello.job_id)
                one.shed = layout.SHED_ALL if holds else 0


def asked(server, peer, command, job=""):
    return asyncio.run(switch(server.arming, server, peer, wire.Request(command, job=job)))


def test_the_answer_tells_who_obeyed():
    server = ServerDouble(Arming())
    server.add(1, 1000, "a")
    server.add(2, 1000, "b", obeys=False)
    server.add(3, 1001, "a")

    reply = asked(server, ALICE, "disarm")
    assert (reply.ok, reply.body) == (True, {"meant": 2, "left": 1})
    assert reply.text == "1 of 2 running probes are quiet; not yet: pid 2"
    assert asked(server, ROOT, "disarm", "a").text == "2 of 2 running probes are quiet"
    assert asked(server, ROOT, "arm").text == "3 of 3 running probes are at work"


def test_a_job_that_does_not_run_is_disarmed_for_when_it_does():
    server = ServerDouble(Arming())
    assert asked(server, ROOT, "disarm", "later").text == "0 of 0 running probes are quiet"
    assert server.arming.holds(1000, "later")

"""`pymon disarm`: which probes are quiet. Kept in the state folder, so that it outlives the daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pymon.base.printable import printable
from pymon.daemon.agent import AgentServer
from pymon.daemon.cases import write_whole
from pymon.daemon.peers import Peer
from pymon.link import layout, wire

log = logging.getLogger(__name__)
OBEY_S = 5.0  # what docs/probe.md promises of the switch
RULES_MAX = 256  # of all users: a bound against one who disarms jobs that do not exist
_POLL_S = 0.05


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`uid` None: everybody's processes; `job` empty: every job."""

    uid: int | None
    job: str
    since_real_s: float


@dataclass(slots=True)
class Arming:
    """What holds now. `path` None: only in memory."""

    path: Path | None = None
    rules: tuple[Rule, ...] = field(default_factory=tuple)

    @classmethod
    def load(cls, path: Path) -> Arming:
        """A file that cannot be read is said so, and nothing is disarmed."""
        try:
            return cls(path, msgspec.json.decode(path.read_bytes(), type=tuple[Rule, ...]))
        except FileNotFoundError:
            return cls(path)
        except (OSError, msgspec.DecodeError) as err:
            log.error("%s: %s; nothing is disarmed", path, err)
            return cls(path)

    def holds(self, uid: int, job: str) -> bool:
        """Whether a process of that user and job is disarmed."""
        return any(rule.uid in (None, uid) and rule.job in ("", job) for rule in self.rules)

    def disarm(self, peer: Peer, job: str) -> str:
        """Why not; empty where it is done. Others than root and the daemon's user reach their own processes only."""
        whose = _whose(peer)
        left = tuple(rule for rule in self.rules if (rule.uid, rule.job) != (whose, job))
        if len(left) >= RULES_MAX:
            return f"{RULES_MAX} rules hold already; `pymon arm` takes some back"
        return self._change((*left, Rule(whose, job, time.time())))

    def arm(self, peer: Peer, job: str) -> str:
        """Takes back the rule of that job, without a job all that this peer may; why not, empty where it is done."""
        whose = _whose(peer)
        mine = [rule for rule in self.rules if whose is None or rule.uid == whose]
        gone = [rule for rule in mine if job in ("", rule.job)]
        if job and not gone:
            return f"no disarm of job {printable(job)} that you could take back holds"
        return self._change(tuple(rule for rule in self.rules if rule not in gone))

    def rows(self) -> list[dict[str, Any]]:
        """For `pymon status`."""
        return [
            {
                "whose": "all users" if rule.uid is None else f"uid {rule.uid}",
                "job": rule.job or "all jobs",
                "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(rule.since_real_s)),
            }
            for rule in self.rules
        ]

    def _change(self, rules: tuple[Rule, ...]) -> str:
        """In force before it is on the disk: a full disk must not keep anybody from switching pymon off."""
        self.rules = rules
        if self.path is None:
            return ""
        try:
            write_whole(self.path, msgspec.json.encode(rules))
        except OSError as err:
            return f"in force, but not over a restart of the daemon: {self.path}: {err.strerror}"
        return ""


async def switch(
    arming: Arming, server: AgentServer, peer: Peer, request: wire.Request
) -> wire.Reply:
    """Disarms or arms, and waits until the running probes have obeyed."""
    wanted = request.command == "disarm"
    change = arming.disarm if wanted else arming.arm
    if problem := change(peer, request.job):
        server.welcome_again()
        return wire.Reply(False, True, problem)
    server.welcome_again()
    meant = [
        one
        for one in server.attachments.values()
        if peer.may_touch(one.uid)
        and request.job in ("", one.hello.job_id)
        and arming.holds(one.uid, one.hello.job_id) == wanted
    ]
    deadline_s = time.monotonic() + OBEY_S
    while (left := [one for one in meant if _is_off(one) != wanted]) and (
        time.monotonic() < deadline_s
    ):
        await asyncio.sleep(_POLL_S)
    done = f"{len(meant) - len(left)} of {len(meant)} running probes are "
    text = done + ("quiet" if wanted else "at work")
    if left:
        text += f"; not yet: pid {', '.join(str(one.pid) for one in left[:16])}"
    return wire.Reply(last=True, text=text, body={"meant": len(meant), "left": len(left)})


def _is_off(attachment: Any) -> bool:
    """By its page; one that went away meanwhile, or cannot be read, is as it was."""
    try:
        sample = attachment.page.train()
    except ValueError:
        return True
    return sample is not None and sample.shed == layout.SHED_ALL


def _whose(peer: Peer) -> int | None:
    return None if peer.uid in (0, os.geteuid()) else peer.uid

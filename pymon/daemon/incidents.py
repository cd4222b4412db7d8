"""Gives findings a life: an incident begins once, lasts while its finding holds, and ends once."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pymon.base.clock import Clock
from pymon.model.finding import Finding, Incident

Key = tuple[str, str]  # detector, attach id


@dataclass(slots=True)
class Incidents:
    """Open incidents, at most one for each detector and process.

    `quiet_s`: how long a finding must be gone before its incident ends, so that one flapping around its limit stays
    one incident (Prometheus' own advice for `keep_firing_for` is a few evaluation periods). `cooldown_s`: how long
    after an end the same finding opens no new one; a repeat within minutes tells nothing new.
    """

    clock: Clock
    quiet_s: float = 10.0
    cooldown_s: float = 300.0
    _open: dict[Key, Incident] = field(default_factory=dict)
    _seen_ns: dict[Key, int] = field(default_factory=dict)
    _ended_ns: dict[Key, int] = field(default_factory=dict)

    @property
    def open(self) -> tuple[Incident, ...]:
        """Those that last now, oldest first."""
        return tuple(self._open.values())

    def update(self, findings: Iterable[Finding]) -> tuple[list[Incident], list[Incident]]:
        """Takes all that holds now; gives the incidents that began, and those that ended."""
        now_ns = self.clock.monotonic_ns()
        began = []
        for finding in findings:
            key = (finding.detector, finding.subject.attach_id)
            if key in self._open:
                self._open[key] = replace(self._open[key], finding=finding)
            elif self._cooling(key, now_ns):
                continue
            else:
                self._open[key] = self._begin(finding)
                began.append(self._open[key])
            self._seen_ns[key] = now_ns
        return began, self._end_quiet(now_ns)

    def _cooling(self, key: Key, now_ns: int) -> bool:
        ended_ns = self._ended_ns.get(key)
        return ended_ns is not None and now_ns - ended_ns < self.cooldown_s * 1e9

    def _begin(self, finding: Finding) -> Incident:
        name = f"{finding.detector}-{secrets.token_hex(4)}"
        return Incident(name, finding, self.clock.real_ns())

    def _end_quiet(self, now_ns: int) -> list[Incident]:
        ended = []
        for key in [k for k in self._open if now_ns - self._seen_ns[k] > self.quiet_s * 1e9]:
            ended.append(replace(self._open.pop(key), ended_real_ns=self.clock.real_ns()))
            del self._seen_ns[key]
            self._ended_ns[key] = now_ns
        for key in [k for k in self._ended_ns if not self._cooling(k, now_ns)]:
            del self._ended_ns[key]
        return ended

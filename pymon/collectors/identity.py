"""A process's job, by the paths of its control groups: Slurm, Kubernetes, containers, systemd.

The paths are the kernel's, but users name the groups below those that are given to them: what stands there is not
believed to be another's job, and is made printable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pymon.base.printable import printable
from pymon.model.jobs import JobIdentity, Manager
from pymon.sources.process import Membership

# By Slurm's cgroup documentation: [NODE_]slurmstepd.scope/job_J/step_S, in version 1 slurm[_NODE]/uid_U/job_J/step_S
_SLURM = re.compile(
    r"(?P<group>.*?/(?:[^/]*slurmstepd\.scope|slurm(?:_[^/]+)?/uid_\d+)/job_(?P<job>\d{1,20}))"
    r"(?:/step_(?P<step>[\w.+-]{1,32}))?(?:/|$)"
)
_POD = re.compile(
    r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$"
)
_CONTAINER = re.compile(r"(?:^|[-:])([0-9a-f]{64})(?:\.scope)?$")
_UNIT = re.compile(r"[\w:.\\@-]+\.(?:service|scope)$")


@dataclass(frozen=True, slots=True)
class Place:
    """The identity, and the path of the group that bounds the job, container or unit; the path is not printable."""

    identity: JobIdentity
    group_path: str


def place(memberships: Sequence[Membership]) -> Place:
    """By the first path that tells a manager; Slurm before containers before systemd."""
    paths = [member.path for member in memberships]
    for find in (_slurm, _container, _unit):
        for path in paths:
            if (found := find(path)) is not None:
                return found
    longest = max(paths, key=len, default="/")
    name = longest.rstrip("/").rpartition("/")[2] or "/"
    return Place(JobIdentity(group=printable(name)), longest)


def _slurm(path: str) -> Place | None:
    match = _SLURM.match(path)
    if match is None or _is_users(path):  # a user's own slice may imitate it
        return None
    job = match["job"]
    identity = JobIdentity(
        Manager.SLURM, slurm_job=job, slurm_step=match["step"] or "", group=f"job_{job}"
    )
    return Place(identity, match["group"])


def _container(path: str) -> Place | None:
    parts = path.split("/")
    pod, container, end = "", "", 0
    for number, part in enumerate(parts):
        # Seen from a pod's namespace, the path goes up first and need not name what all pods have in common.
        in_pods = any("kubepods" in before for before in parts[:number]) or parts[1:2] == [".."]
        if in_pods and not pod and (match := _POD.search(part)):
            pod, end = match[1].replace("_", "-"), number + 1
        elif match := _CONTAINER.search(part):
            container, end = match[1], number + 1
            break  # what is below is the container's own naming
    if _is_users(path):
        pod = ""
    if not pod and not container:
        return None
    manager = Manager.KUBERNETES if pod else Manager.DOCKER
    group = "/".join(part for part in (f"pod{pod}" if pod else "", container[:12]) if part)
    identity = JobIdentity(manager, pod_uid=pod, container_id=container, group=group)
    return Place(identity, "/".join(parts[:end]))


def _is_users(path: str) -> bool:
    return "/user.slice/" in path


def _unit(path: str) -> Place | None:
    parts = path.split("/")
    for number, part in enumerate(parts):
        # A user manager runs units of its own: the one that was started says more than `user@1000.service`.
        if _UNIT.match(part) and not (part.startswith("user@") and number + 1 < len(parts)):
            unit = printable(part)
            identity = JobIdentity(Manager.SYSTEMD, unit=unit, group=unit)
            return Place(identity, "/".join(parts[: number + 1]))
    return None

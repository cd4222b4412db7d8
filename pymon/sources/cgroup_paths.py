"""Where the folder of a process's control group is: paths are told relative to the daemon's own namespace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources.process import Membership, Processes
from pymon.sources.roots import Roots

_DEPTH_MAX = 64
_SEARCHED_MAX = (
    20_000  # folders in which the daemon's own group is looked for; a node has some thousand
)
_SEARCH_AGAIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Group:
    """A group as one controller's folder has it; `path` is how the kernel names it, `version` is 1 or 2."""

    version: int
    folder: str
    top: str
    path: str

    def upwards(self) -> Iterator[str]:
        """Its folder and all above it."""
        folder = self.folder
        for _ in range(_DEPTH_MAX):
            yield folder
            if folder == self.top:
                return
            folder = folder.rpartition("/")[0]

    def ancestor(self, path: str) -> Group:
        """The group above it (or itself) that the kernel names so."""
        path = path.rstrip("/")
        if not f"{self.path}/".startswith(f"{path}/"):
            return self
        above = self.path[len(path) :].rstrip("/").count("/")
        folders = list(self.upwards())
        return Group(self.version, folders[min(above, len(folders) - 1)], self.top, path or "/")


@dataclass(slots=True)
class CgroupPaths:
    """Finds folders below `roots.sys`/fs/cgroup. `own` is where the daemon's own namespace is mounted."""

    roots: Roots
    own: str = "/sys/fs/cgroup"
    _prefix: str | None = None
    _searched_s: float = field(default=-_SEARCH_AGAIN_S)

    def group(self, memberships: Sequence[Membership], controller: str) -> Group:
        """The group in which a process is for this controller.

        Raises SourceAbsent where it has none, or where its folder lies outside of what is mounted here.
        """
        base = f"{self.roots.sys}/fs/cgroup"
        if member := next((m for m in memberships if controller in m.controllers), None):
            path = self._within_mount(member.path, base, controller)
            tops = [f"{base}/{','.join(member.controllers)}", f"{base}/{controller}"]
        elif member := next((m for m in memberships if not m.controllers), None):
            whole = os.path.exists(f"{base}/cgroup.controllers")
            tops = [base] if whole else [f"{base}/unified"]
            path = self._within_mount(member.path, base, "")
            path = self._whole(path, base) if whole else path
        else:
            raise SourceAbsent(f"in no group that has {controller}")
        if "/../" in f"{path}/":
            raise SourceAbsent(f"{path!r} lies outside of the daemon's control group namespace")
        for top in tops:
            if os.path.isdir(folder := top + path.rstrip("/")):
                version = 2 if not member.controllers else 1
                return Group(version, folder, top, member.path)
        raise SourceAbsent(f"{tops[-1]}{path} is not there")

    def _within_mount(self, path: str, base: str, controller: str) -> str:
        """The path below the mount: a container's may be mounted alone while its processes' paths are whole."""
        try:
            mounts = Processes(self.roots.proc).mounts("self")
        except (SourceAbsent, SourceFailed):
            return path
        for mount in mounts:
            if mount.kind != ("cgroup" if controller else "cgroup2"):
                continue
            if mount.root == "/" or mount.root.startswith(
                "/.."
            ):  # the latter: the host's, see `_whole`
                continue
            if not mount.point.startswith(base) or (controller and controller not in mount.options):
                continue
            root = mount.root.rstrip("/")
            if f"{path}/".startswith(f"{root}/"):
                return path[len(root) :] or "/"
        return path

    def _whole(self, path: str, base: str) -> str:
        """The path from the host's top, where the host's tree is mounted and the daemon has a namespace of its own."""
        if self._prefix is None and time.monotonic() - self._searched_s >= _SEARCH_AGAIN_S:
            self._searched_s = time.monotonic()
            self._prefix = _place_of(self.own, base)
        if not self._prefix:
            return path
        parts: list[str] = []
        for part in f"{self._prefix}{path}".split("/"):
            if part != "..":
                parts += [part] if part else []
            elif parts:
                parts.pop()
            else:
                return path
        return "/" + "/".join(parts)


def _place_of(own: str, base: str) -> str | None:
    """Where the folder `own` lies in the tree below `base`: it has the same number there. Empty: it is the same."""
    try:
        wanted = os.stat(own)
        if os.stat(base).st_dev != wanted.st_dev or os.path.samefile(own, base):
            return ""  # another tree, or all that there is
        left = [base]
        for _ in range(_SEARCHED_MAX):
            if not left:
                break
            with os.scandir(left.pop(0)) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.inode() == wanted.st_ino:
                            return entry.path[len(base) :]
                        left.append(entry.path)
    except OSError:
        pass  # a group that vanished meanwhile: searched again later
    return None

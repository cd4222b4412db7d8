"""One process, from `/proc/PID`: what any user may read of any process, unless it says otherwise."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources import files

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of include/linux/sched.h
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Stat:
    """/proc/PID/stat. `state` is the kernel's letter: R S D Z T t X I."""

    pid: int
    name: str
    state: str
    parent: int
    kernel_thread: bool
    cpu_s: float
    threads: int
    start_ticks: int  # since boot; with the pid it names one process for good
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Status:
    """/proc/PID/status. `ns_pids`: its pid in each pid namespace, from this /proc's to its own."""

    uid: int
    ns_pids: tuple[int, ...]
    cpus_allowed: frozenset[int] | None
    nodes_allowed: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of /proc/PID/mountinfo; `root` is the folder of that file system that is mounted."""

    number: int
    parent: int  # the mount that it lies on
    device: str  # MAJOR:MINOR
    root: str
    point: str
    kind: str
    options: tuple[str, ...]  # of the file system


@dataclass(frozen=True, slots=True)
class Membership:
    """A line of /proc/PID/cgroup; `controllers` is empty for version 2."""

    controllers: tuple[str, ...]
    path: str


@dataclass(frozen=True, slots=True)
class Processes:
    """Reads below `root`. Each method raises SourceAbsent, NotPermitted or SourceFailed as `files.read`."""

    root: str = "/proc"

    def pids(self) -> list[int]:
        """All that can be seen; some may be gone when they are looked at."""
        return [int(name) for name in files.names(self.root) if name.isdecimal()]

    def stat(self, pid: int) -> Stat:
        """/proc/PID/stat."""
        return files.parsed(f"{self.root}/{pid}/stat", _stat)

    def status(self, pid: int) -> Status:
        """/proc/PID/status."""
        return files.parsed(f"{self.root}/{pid}/status", _status)

    def switches(self, pid: int) -> int:
        """How often its main thread has left the processor, since its start: it ran in between where that grew."""

        def parse(text: str) -> int:
            values = dict(line.partition(":")[::2] for line in files.lines(text)[1:])
            return int(values["voluntary_ctxt_switches"]) + int(
                values["nonvoluntary_ctxt_switches"]
            )

        return files.parsed(f"{self.root}/{pid}/status", parse)

    def cgroup(self, pid: int) -> tuple[Membership, ...]:
        """/proc/PID/cgroup."""
        return files.parsed(f"{self.root}/{pid}/cgroup", _memberships)

    def mounts(self, pid: int | str) -> tuple[Mount, ...]:
        """/proc/PID/mountinfo; its order says nothing, the parents do."""
        return files.parsed(f"{self.root}/{pid}/mountinfo", _mounts)

    def arguments(self, pid: int) -> list[str]:
        """The command line."""
        return files.read(f"{self.root}/{pid}/cmdline").rstrip("\0").split("\0")

    def children(self, pid: int, all_threads: bool) -> list[int]:
        """Processes that its main thread has forked, or any thread of it has."""
        tids = files.names(f"{self.root}/{pid}/task") if all_threads else [str(pid)]
        found: list[int] = []
        for tid in tids:
            path = f"{self.root}/{pid}/task/{tid}/children"
            try:
                found += files.parsed(path, lambda text: [int(child) for child in text.split()])
            except SourceAbsent:
                if not all_threads:  # else a thread that ended meanwhile
                    raise
        return found

    def descriptors(self, pid: int) -> int:
        """How many it has open: since Linux 6.2 anyone is told, before that its own user and root are."""
        path = f"{self.root}/{pid}/fd"
        try:
            # A folder's size is their number in a real /proc alone, and 0 in that of an older kernel.
            told = os.stat(path).st_size if _is_mount(self.root) else 0
            return told or len(os.listdir(path))
        except OSError as err:
            raise files.as_source_error(path, err) from None

    def descriptors_max(self, pid: int) -> int:
        """Its soft limit. Raises SourceAbsent where there is none."""
        path = f"{self.root}/{pid}/limits"
        for line in files.lines(files.read(path)):
            if line.startswith("Max open files"):
                soft = line[len("Max open files") :].split()[:1]
                if soft == ["unlimited"]:
                    raise SourceAbsent(f"{path}: unlimited")
                if soft and soft[0].isdecimal():
                    return int(soft[0])
        raise SourceFailed(f"{path}: no open files in it")

    def sees_the_host(self) -> bool:
        """Whether this /proc is that of the first pid namespace, where the driver's pids come from.

        Only there is process 2 a kernel thread; a name could be imitated, its flag cannot.
        """
        try:
            return self.stat(2).kernel_thread
        except (SourceAbsent, SourceFailed):
            return False

    def is_own(self) -> bool:
        """Whether pids in this /proc are those that the kernel tells the daemon of its peers."""
        try:
            told = os.readlink(f"{self.root}/self")
        except OSError:
            return True  # a tree without the link
        return told == str(os.getpid())


@functools.cache
def _is_mount(root: str) -> bool:
    return os.path.ismount(root)


def _stat(text: str) -> Stat:
    """The name may hold anything, brackets and newlines too: it ends at the last bracket."""
    begin, end = text.index(" ("), text.rindex(") ")
    fields = text[end + 2 :].split()  # from field 3 on (proc(5))
    if len(fields[0]) != 1:
        raise ValueError(fields[0])
    return Stat(
        pid=int(text[:begin]),
        name=text[begin + 2 : end],
        state=fields[0],
        parent=int(fields[1]),
        kernel_thread=bool(int(fields[6]) & _KERNEL_THREAD),
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss_bytes=max(0, int(fields[21])) * PAGE_BYTES,
    )


def _status(text: str) -> Status:
    values: dict[str, str] = {}
    for line in files.lines(text):
        name, _, value = line.partition(":")
        values.setdefault(name, value.strip())  # the process's own name stands first, escaped
    cpus, nodes = values.get("Cpus_allowed_list"), values.get("Mems_allowed_list")
    return Status(
        uid=int(values["Uid"].split()[1]),
        ns_pids=tuple(int(pid) for pid in values.get("NSpid", "").split()),
        cpus_allowed=None if cpus is None else files.cpu_list(cpus),
        nodes_allowed=None if nodes is None else files.cpu_list(nodes),
    )


def _memberships(text: str) -> tuple[Membership, ...]:
    found = []
    for line in files.lines(text):
        number, controllers, path = line.split(":", 2)
        if not number.isdecimal():
            continue  # the rest of a name with a newline in it
        found.append(Membership(tuple(controllers.split(",")) if controllers else (), path))
    return tuple(found)


def _mounts(text: str) -> tuple[Mount, ...]:
    found = []
    for line in files.lines(text):
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not separator:
            raise ValueError(line[:40])
        options = tuple(rest[2].split(",")) if len(rest) > 2 else ()
        found.append(
            Mount(
                number=int(fields[0]),
                parent=int(fields[1]),
                device=fields[2],
                root=_plain(fields[3]),
                point=_plain(fields[4]),
                kind=rest[0],
                options=options,
            )
        )
    return tuple(found)


def _plain(path: str) -> str:
    """mountinfo writes blanks and newlines as octal escapes."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), path)

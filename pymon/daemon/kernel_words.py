"""What the kernel said about a process that it ended: out of memory, a fault of its own, an error of its GPU."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.base.printable import printable
from pymon.sources.kmsg import KernelLog, Record

LINES_MAX = 256  # kept: a line may come before the death is seen, with those of other processes
_LINE_MAX = 200
# mm/oom_kill.c: "Out of memory: Killed process 7 (python)", "Memory cgroup out of memory: Killed process 7 (python)";
# arch/x86/mm/fault.c: "python[7]: segfault at 0 ip ..."; traps.c: "traps: python[7] general protection fault";
# the NVIDIA driver: "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, ...".
_NAMED = tuple(
    map(
        re.compile,
        (
            r"Killed process (\d+)\b",
            r"\[(\d+)\]: segfault at ",
            r"^traps: .*\[(\d+)\]",
            r"NVRM: Xid .*\bpid='?(\d+)",
        ),
    )
)


@dataclass(slots=True)
class KernelWords:
    """Lines of the kernel's log that name a process. Without the right to read the log (CAP_SYSLOG) there are none."""

    log: KernelLog = field(default_factory=KernelLog)
    _lines: deque[tuple[int, Record]] = field(default_factory=lambda: deque(maxlen=LINES_MAX))

    def about(self, host_pid: int | None, since_real_ns: int) -> tuple[str, ...]:
        """What was said of it since then; blocks for as long as reading the new lines takes."""
        self.read()
        if host_pid is None:  # of another pid namespace: the kernel's log has another number
            return ()
        return tuple(
            f"kernel log: {printable(record.text, _LINE_MAX)}"
            for pid, record in self._lines
            if pid == host_pid and record.real_s >= since_real_ns / 1e9
        )

    def read(self) -> None:
        """Takes in what is new. The first call begins at the log's end."""
        try:
            self._lines.extend(_naming(self.log.records()))
        except (SourceAbsent, SourceFailed):
            return


def _naming(records: Iterable[Record]) -> Iterable[tuple[int, Record]]:
    for record in records:
        for pattern in _NAMED:
            if found := pattern.search(record.text):
                yield int(found[1]), record

"""Errors of GPUs and of NVSwitches that their drivers write to the kernel's log."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Final

from pymon.model.gpu import SxidCount, XidCount, XidSection
from pymon.sources.kmsg import KernelLog

FALLEN_OFF: Final = 79  # "GPU has fallen off the bus"
SAME_S: Final = 60.0  # the driver tells of a GPU that fell off the bus in two lines, seconds apart
KINDS_MAX: Final = 4096  # kept (GPU, code) pairs: 64 codes of 64 GPUs
# "NVRM: Xid (PCI:0000:3b:00): 79, pid=..." and, from old drivers, "NVRM: Xid (0000:3b:00): 79, ..."
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:]+)(?:\.\d)?\): (\d{1,6})\b")
# Some drivers tell it without the word Xid (leptonai/gpud#1209).
_FALLEN = re.compile(
    r"NVRM: GPU (?:at )?(?:PCI:)?([0-9a-fA-F:]+)(?:\.\d)?: GPU has fallen off the bus"
)

# The first line of an error; those with its data carry no such word and would count it again.
_SXID = re.compile(
    r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d{1,6}), (Fatal|Non-fatal)\b"
)


@dataclass(slots=True)
class XidCollector:
    """Gives one `XidSection`: XID and SXid errors since the daemon began, by device and code. Unknown codes are kept.

    Source: /dev/kmsg, a second source beside NVML's events, which one lost GPU may silence.
    Cost: one read that finds nothing.
    Errors: `SourceAbsent` without the right to read the log (CAP_SYSLOG).
    """

    name: ClassVar[str] = "xid"
    interval_s: ClassVar[float] = 1.0
    timeout_s: ClassVar[float] = 1.0
    log: KernelLog = field(default_factory=KernelLog)
    _counts: dict[tuple[str, int], XidCount] = field(default_factory=dict)
    _of_switches: dict[tuple[str, int, str], SxidCount] = field(default_factory=dict)

    def collect(self) -> XidSection:
        """Read what is new."""
        for record in self.log.records():
            if found := _XID.search(record.text):
                self._count(found[1], int(found[2]), record.real_s)
            elif found := _FALLEN.search(record.text):
                self._count(found[1], FALLEN_OFF, record.real_s)
            elif found := _SXID.search(record.text):
                self._count_switch(found[1], int(found[2]), found[3], record.real_s)
        gpus = tuple((pci, count) for (pci, _), count in self._counts.items())
        return XidSection(gpus, tuple(self._of_switches.values()))

    def _count(self, pci: str, xid: int, real_s: float) -> None:
        key = (normal_pci(pci), xid)
        before = self._counts.get(key)
        if before is None and len(self._counts) >= KINDS_MAX:
            return
        if xid == FALLEN_OFF and before is not None and real_s - before.last_real_s < SAME_S:
            return
        self._counts[key] = XidCount(xid, before.events_total + 1 if before else 1, real_s)

    def _count_switch(self, pci: str, sxid: int, said: str, real_s: float) -> None:
        severity = said.lower().replace("-", "_")
        key = (normal_pci(pci), sxid, severity)
        before = self._of_switches.get(key)
        if before is None and len(self._of_switches) >= KINDS_MAX:
            return
        total = before.events_total + 1 if before else 1
        self._of_switches[key] = SxidCount(*key, total, real_s)


def normal_pci(text: str) -> str:
    """`0000:3b:00` as NVML writes it, `00000000:3B:00.0`; what is no such address as it stands."""
    parts = text.removesuffix(".0").split(":")
    if len(parts) != 3:
        return text
    return f"{parts[0].zfill(8)}:{parts[1]}:{parts[2]}.0".upper()

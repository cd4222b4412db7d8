"""Traffic of the node's network interfaces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.base.printable import printable
from pymon.collectors.absences import Absences
from pymon.collectors.rising import Rising
from pymon.model.absence import Why
from pymon.model.host import Interface, NetworkSection
from pymon.sources.proc_devices import ProcDevices
from pymon.sources.sysfs import Sysfs

_INTERFACES_MAX = 32
_COUNTERS = (
    "receive_bytes",
    "receive_errors",
    "receive_drops",
    "transmit_bytes",
    "transmit_errors",
    "transmit_drops",
)


@dataclass(frozen=True, slots=True)
class NetworkCollector:
    """Gives one `NetworkSection`: interfaces with hardware behind them, so that no byte is counted twice.

    Source: /proc/1/net/dev (the host's network namespace where the daemon sees it, else its own), /sys/class/net.
    Cost: one read, and two for each interface.
    Errors: a link that is down has no speed. `SourceAbsent` where the namespace has none, as in most containers.
    """

    name: ClassVar[str] = "network"
    interval_s: ClassVar[float] = 10.0
    timeout_s: ClassVar[float] = 0.5
    devices: ProcDevices = field(default_factory=ProcDevices)
    sysfs: Sysfs = field(default_factory=Sysfs)
    _rising: Rising = field(default_factory=Rising)

    def collect(self) -> NetworkSection:
        """Read once."""
        absences = Absences()
        told = [one for one in self.devices.interfaces() if self.sysfs.is_interface(one.name)]
        if not told:
            raise SourceAbsent("no network hardware in the daemon's namespace")
        if (left := len(told) - _INTERFACES_MAX) > 0:
            absences.note("interface", Why.TOO_MANY, f"{len(told)} interfaces", left)
        interfaces = []
        for one in told[:_INTERFACES_MAX]:
            held = {c: int(self._rising.hold((one.name, c), getattr(one, c))) for c in _COUNTERS}
            interfaces.append(
                Interface(
                    device=printable(one.name),
                    receive_bytes_total=held["receive_bytes"],
                    receive_errors_total=held["receive_errors"],
                    receive_drops_total=held["receive_drops"],
                    transmit_bytes_total=held["transmit_bytes"],
                    transmit_errors_total=held["transmit_errors"],
                    transmit_drops_total=held["transmit_drops"],
                    speed_bytes_per_s=absences.get("speed", self.sysfs.interface_speed, one.name),
                )
            )
        self._rising.forget_unseen()
        return NetworkSection(tuple(interfaces), absences.all())

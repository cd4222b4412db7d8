"""Traffic and errors of InfiniBand and RoCE ports, over which ranks of several nodes exchange gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.base.printable import printable
from pymon.collectors.absences import Absences
from pymon.collectors.rising import Rising
from pymon.model.absence import Why
from pymon.model.host import InfinibandPort, InfinibandSection
from pymon.sources.sysfs import Port, Sysfs

_PORTS_MAX = 32
# The kernel's counters that tell a bad cable, a congested fabric or a lossy RoCE network, and how they are called here.
_ERRORS = {
    "symbol_error": "symbol",
    "port_rcv_errors": "receive",
    "port_xmit_discards": "transmit_discard",
    "link_downed": "link_down",
    "link_error_recovery": "link_recovery",
    "local_ack_timeout_err": "acknowledgement_timeout",
    "out_of_sequence": "out_of_sequence",
    "packet_seq_err": "packet_sequence",
    "rnr_nak_retry_err": "receiver_not_ready",
}
_NAMES = ("port_rcv_data", "port_xmit_data", "port_xmit_wait", *_ERRORS)


@dataclass(frozen=True, slots=True)
class InfinibandCollector:
    """Gives one `InfinibandSection`.

    Source: /sys/class/infiniband/*/ports/*, counters and hw_counters.
    Cost: fourteen small reads for each port; some drivers ask the firmware for each.
    Errors: counters that a driver lacks are None. `SourceAbsent` where there is no such device.
    """

    name: ClassVar[str] = "infiniband"
    interval_s: ClassVar[float] = 10.0
    timeout_s: ClassVar[float] = 0.5
    sysfs: Sysfs = field(default_factory=Sysfs)
    _rising: Rising = field(default_factory=Rising)

    def collect(self) -> InfinibandSection:
        """Read once."""
        absences = Absences()
        told = self.sysfs.ports()
        if not told:
            raise SourceAbsent("no InfiniBand port here")
        if (left := len(told) - _PORTS_MAX) > 0:
            absences.note("port", Why.TOO_MANY, f"{len(told)} ports", left)
        ports = []
        for device, number in told[:_PORTS_MAX]:
            port = absences.get("port", self.sysfs.port, device, number, _NAMES)
            if port is not None:
                ports.append(self._port(port))
        self._rising.forget_unseen()
        return InfinibandSection(tuple(ports), absences.all())

    def _port(self, port: Port) -> InfinibandPort:
        def held(name: str) -> int | None:
            value = port.counters.get(name)
            if value is None:
                return None
            return int(self._rising.hold((port.device, port.port, name), value))

        errors = ((kind, held(name)) for name, kind in _ERRORS.items())
        return InfinibandPort(
            device=printable(port.device),
            port=printable(port.port),
            active=port.state == "active",
            rate_bytes_per_s=port.rate_bytes_per_s,
            receive_bytes_total=held("port_rcv_data"),
            transmit_bytes_total=held("port_xmit_data"),
            transmit_wait_ticks_total=held("port_xmit_wait"),
            errors_total=tuple((kind, count) for kind, count in errors if count is not None),
        )

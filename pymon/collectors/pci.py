"""PCI Express links of GPUs, NVMe drives and network cards: a card in a bad slot runs at half width for months."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.collectors.absences import Absences
from pymon.model.absence import Why
from pymon.model.host import PciLink, PciSection
from pymon.sources.sysfs import Sysfs

_LINKS_MAX = 64


@dataclass(frozen=True, slots=True)
class PciCollector:
    """Gives one `PciSection`.

    Source: /sys/bus/pci/devices/*/{class,vendor,current_link_*,max_link_*}.
    Cost: one read for each PCI device of the node and five for each link, each half minute.
    Errors: what a lost device does not tell is None. `SourceAbsent` where no such device has a link (virtual machines).
    """

    name: ClassVar[str] = "pci"
    interval_s: ClassVar[float] = 30.0
    timeout_s: ClassVar[float] = 0.5
    sysfs: Sysfs = field(default_factory=Sysfs)

    def collect(self) -> PciSection:
        """Read once."""
        absences = Absences()
        links = []
        for address in self.sysfs.pci_addresses():
            kind = absences.get("device", self.sysfs.pci_kind, address)
            if kind is None:
                continue
            link = absences.get("link", self.sysfs.pci_link, address, kind)
            if link is not None:
                links.append(
                    PciLink(
                        link.address,
                        link.kind,
                        link.width,
                        link.width_max,
                        link.generation,
                        link.generation_max,
                    )
                )
        if not links:
            raise SourceAbsent("no PCI Express link of a GPU, NVMe drive or network card")
        if (left := len(links) - _LINKS_MAX) > 0:
            absences.note("link", Why.TOO_MANY, f"{len(links)} links", left)
        return PciSection(tuple(links[:_LINKS_MAX]), absences.all())

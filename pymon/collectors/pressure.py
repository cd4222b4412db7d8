"""Pressure stall information of the host: time in which work waited for processors, memory or I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.collectors.absences import Absences
from pymon.model.host import Pressure, PressureSection
from pymon.sources.procfs import PRESSURES, Procfs


@dataclass(frozen=True, slots=True)
class PressureCollector:
    """Gives one `PressureSection`, in seconds since boot.

    Source: /proc/pressure/{cpu,memory,io}.
    Cost: three small reads.
    Errors: `SourceAbsent` where the kernel has no PSI or it was switched off at boot (`psi=0`).
    """

    name: ClassVar[str] = "pressure"
    interval_s: ClassVar[float] = 5.0
    timeout_s: ClassVar[float] = 0.5
    procfs: Procfs = field(default_factory=Procfs)

    def collect(self) -> PressureSection:
        """Read once."""
        absences = Absences()
        found = []
        for resource in PRESSURES:
            told = absences.get(resource, self.procfs.pressure, resource)
            if told is not None:
                found.append(Pressure(resource, *told))
        if not found:
            raise SourceAbsent(f"no pressure stall information: {absences.all()[0].example}")
        return PressureSection(tuple(found), absences.all())

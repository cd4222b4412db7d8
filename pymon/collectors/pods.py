"""Which pods the node's GPUs were given to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent
from pymon.base.printable import printable
from pymon.collectors.absences import Absences
from pymon.model.absence import Why
from pymon.model.pods import PodGpu, PodsSection
from pymon.sources.podresources import PodDevice, PodResources

_GPUS_MAX = 128  # a node's instances and shares
_VENDOR = "nvidia.com/"


@dataclass(frozen=True, slots=True)
class PodsCollector:
    """Gives one `PodsSection`: GPUs that containers were given, used or not, with pod, namespace and container.

    Source: the kubelet's pod-resources socket.
    Cost: one call each half minute; the kubelet allows a hundred a second.
    Errors: `SourceAbsent` where there is no kubelet or its socket is closed to the daemon's user, `SourceFailed` where
        it does not answer within a second.
    """

    name: ClassVar[str] = "pods"
    interval_s: ClassVar[float] = 30.0
    timeout_s: ClassVar[float] = 0.8
    kubelet: PodResources = field(default_factory=PodResources)

    def collect(self) -> PodsSection:
        """Ask once."""
        absences = Absences()
        told = [one for one in self.kubelet.devices() if one.resource.startswith(_VENDOR)]
        if not told:
            raise SourceAbsent("no pod of this node has a GPU")
        if (left := len(told) - _GPUS_MAX) > 0:
            absences.note("gpu", Why.TOO_MANY, f"{len(told)} devices", left)
        return PodsSection(tuple(_gpu(one) for one in told[:_GPUS_MAX]), absences.all())


def _gpu(device: PodDevice) -> PodGpu:
    """A share of a GPU (time slicing) is named `UUID::NUMBER`."""
    uuid = device.device.partition("::")[0]
    names = (
        printable(name, 128) for name in (device.namespace, device.pod, device.container, uuid)
    )
    return PodGpu(*names)

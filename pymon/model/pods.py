"""Which pods the node's GPUs were given to, by the kubelet."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.model.absence import Absence
from pymon.model.snapshot import Section


@dataclass(frozen=True, slots=True)
class PodGpu:
    """A GPU, an instance of one, or a share of one that a container was given, whether it uses it or not."""

    namespace: str
    pod: str
    container: str
    uuid: str  # of the GPU or MIG device; the plugin's own name where it has another


@dataclass(frozen=True, slots=True)
class PodsSection(Section):
    """All GPUs that pods of this node have."""

    gpus: tuple[PodGpu, ...]
    absent: tuple[Absence, ...] = ()

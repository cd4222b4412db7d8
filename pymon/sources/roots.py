"""Where the kernel's file systems are found: other folders in a container that was given the host's, and in tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roots:
    """Paths without a slash at their end; `kubelet` is its pod-resources socket."""

    proc: str = "/proc"
    sys: str = "/sys"
    kubelet: str = "/var/lib/kubelet/pod-resources/kubelet.sock"

"""Devices and topology, from `/sys`; `root` is a parameter so that containers and tests bring their own tree."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources import files

# Transfers per second of each generation of PCI Express (PCIe base specifications 1 to 7).
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
_PCI_CLASSES = {
    "0300": "gpu",
    "0302": "gpu",
    "0108": "nvme",
    "0200": "network",
    "0207": "infiniband",
}
_NVIDIA = "0x10de"
_RATE = re.compile(r"([\d.]+) Gb/sec")


@dataclass(frozen=True, slots=True)
class PciLink:
    """`width` in lanes; None is what the device does not tell (a lost one answers 255 lanes at unknown speed)."""

    address: str  # 0000:3b:00.0
    kind: str
    width: int | None
    width_max: int | None
    generation: int | None
    generation_max: int | None


@dataclass(frozen=True, slots=True)
class Port:
    """A port of an InfiniBand or RoCE device; `counters` are the kernel's names, data already in bytes."""

    device: str
    port: str
    state: str
    rate_bytes_per_s: float | None
    counters: dict[str, int]


@dataclass(frozen=True, slots=True)
class Sysfs:
    """Reads below `root`. Raises as `files.read`."""

    root: str = "/sys"

    def is_disk(self, name: str) -> bool:
        """Whether it is a whole device with hardware behind it: no partition, loop, RAM disk or volume."""
        return _exists(f"{self.root}/block/{name.replace('/', '!')}/device")

    def is_interface(self, name: str) -> bool:
        """Whether there is hardware behind the network interface."""
        return _exists(f"{self.root}/class/net/{name}/device")

    def interface_speed(self, name: str) -> float:
        """Bytes per second, of megabits. Raises SourceAbsent where the link is down or has no speed (virtual ones)."""
        path = f"{self.root}/class/net/{name}/speed"
        try:
            megabits = files.number(path)
        except SourceFailed as err:  # EINVAL: the kernel's answer where the link is down
            raise SourceAbsent(str(err)) from None
        if megabits <= 0:
            raise SourceAbsent(f"{path}: {megabits}")
        return megabits * 1e6 / 8

    def ports(self) -> list[tuple[str, str]]:
        """Device and port of each InfiniBand port."""
        base = f"{self.root}/class/infiniband"
        found = []
        for device in files.names(base):
            try:
                found += [(device, port) for port in files.names(f"{base}/{device}/ports")]
            except (SourceAbsent, SourceFailed):
                continue  # unplugged meanwhile
        return found

    def port(self, device: str, port: str, names: tuple[str, ...]) -> Port:
        """The port's state, rate and those of the counters that it has."""
        base = f"{self.root}/class/infiniband/{device}/ports/{port}"
        counters = {}
        for name in names:
            try:  # they lie in two folders, and not every driver has every one
                value = _first(f"{base}/counters/{name}", f"{base}/hw_counters/{name}")
            except (SourceAbsent, SourceFailed):
                continue
            # Data are counted in words of 32 bits (Documentation/ABI/stable/sysfs-class-infiniband).
            counters[name] = value * 4 if name in ("port_rcv_data", "port_xmit_data") else value
        state = files.read(f"{base}/state").partition(":")[2].strip().lower()
        rate = _RATE.match(files.read(f"{base}/rate"))
        return Port(device, port, state, float(rate[1]) * 1e9 / 8 if rate else None, counters)

    def pci_addresses(self) -> list[str]:
        """Of all PCI devices."""
        return files.names(f"{self.root}/bus/pci/devices")

    def pci_kind(self, address: str) -> str | None:
        """What kind of device it is; None for what has no bearing on training."""
        base = f"{self.root}/bus/pci/devices/{address}"
        kind = _PCI_CLASSES.get(files.read(f"{base}/class").strip()[2:6])
        if kind == "gpu" and files.read(f"{base}/vendor").strip() != _NVIDIA:
            return None  # the server's own display
        return kind

    def pci_link(self, address: str, kind: str) -> PciLink:
        """The link's present and greatest width and speed."""
        base = f"{self.root}/bus/pci/devices/{address}"
        width, width_max = (_width(f"{base}/{which}_link_width") for which in ("current", "max"))
        now, most = (_generation(f"{base}/{which}_link_speed") for which in ("current", "max"))
        if width is None and width_max is None:
            raise SourceAbsent(f"{base} has no link")
        return PciLink(address, kind, width, width_max, now, most)

    def pci_node(self, address: str) -> int:
        """NUMA node of a device. Raises SourceAbsent where the firmware tells none."""
        path = f"{self.root}/bus/pci/devices/{address}/numa_node"
        node = files.number(path)
        if node < 0:
            raise SourceAbsent(f"{path}: the firmware tells none")
        return node

    def nodes(self) -> dict[int, frozenset[int]]:
        """Processors of each NUMA node."""
        base = f"{self.root}/devices/system/node"
        numbers = [int(name[4:]) for name in files.names(base) if re.fullmatch(r"node\d+", name)]
        return {
            number: files.parsed(f"{base}/node{number}/cpulist", files.cpu_list)
            for number in sorted(numbers)
        }

    def distances(self, node: int, nodes: tuple[int, ...]) -> dict[int, int]:
        """Distance from a node to each of `nodes` (all, ascending); 10 is its own (ACPI's SLIT)."""
        path = f"{self.root}/devices/system/node/node{node}/distance"
        told = files.parsed(path, lambda text: [int(distance) for distance in text.split()])
        if len(told) != len(nodes):
            raise SourceFailed(f"{path}: {len(told)} distances for {len(nodes)} nodes")
        return dict(zip(nodes, told, strict=True))

    def cpus_online(self) -> frozenset[int]:
        """Logical processors that run."""
        return files.parsed(f"{self.root}/devices/system/cpu/online", files.cpu_list)

    def core(self, cpu: int) -> int:
        """The lowest processor of the physical core that this one is a thread of."""
        topology = f"{self.root}/devices/system/cpu/cpu{cpu}/topology"
        siblings = f"{topology}/thread_siblings_list"
        return files.parsed(siblings, lambda text: min(files.cpu_list(text)))


def _exists(path: str) -> bool:
    return os.path.exists(path)


def _first(*paths: str) -> int:
    for path in paths:
        try:
            return files.number(path)
        except SourceAbsent as err:
            absent = err
    raise absent


def _width(path: str) -> int | None:
    try:
        width = files.number(path)
    except (SourceAbsent, SourceFailed):
        return None
    return width if 1 <= width <= 32 else None


def _generation(path: str) -> int | None:
    try:
        return files.parsed(path, lambda text: _GENERATIONS.get(float(text.split()[0])))
    except (SourceAbsent, SourceFailed):  # `Unknown` among them
        return None

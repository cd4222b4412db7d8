"""The samples of GPUs: each family of `pymon.model.catalog_gpu` from the section it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pymon.exporters.sample import Labels, Part, Sample
from pymon.model.gpu import (
    Driver,
    DriverState,
    Gpu,
    GpuActivity,
    GpuMemory,
    GpuSection,
    GpuState,
    NvmlCost,
    SlowReadings,
    XidSection,
)
from pymon.model.snapshot import Snapshot

COLLECTOR: Final = "nvml"
_MEMORY: Final = ("size_bytes", "used_bytes", "free_bytes", "reserved_bytes")
_RATIOS: Final = tuple(name for name in GpuActivity.__slots__ if name.endswith("_ratio"))
_GPU_STATES: Final = tuple((state, state.value) for state in GpuState)
_DRIVER_STATES: Final = tuple((state, state.value) for state in DriverState)
_BOOLS: Final = ("row_remap_pending", "row_remap_failure")


@dataclass(frozen=True, slots=True)
class GpuSamples:
    """`processes_max`: the processes of a GPU with the most memory get series of their own; 0: none."""

    processes_max: int = 0

    def of(self, snapshot: Snapshot) -> Iterator[Part]:
        """Everything about the driver and its GPUs; nothing where NVML is switched off."""
        outcome = next((o for o in snapshot.outcomes if o.collector == COLLECTOR), None)
        log = snapshot.get(XidSection)
        section = outcome.section if outcome is not None else None
        if not isinstance(section, GpuSection):
            if outcome is not None:
                yield "nvml", None, (("pymon_nvml_up", (), 0),)
            yield "xid", log, _xids(None, log)
            yield "sxid", log, _sxids(log)
            return
        yield "nvml", section.driver, _about_driver(section.driver)
        yield "nvml_cost", section.cost, _about_cost(section.cost)
        for gpu in section.gpus:
            labels = (str(gpu.index), gpu.uuid)
            steady = (labels, gpu.state, gpu.identity, gpu.invalid_total)
            yield ("gpu", labels), steady, _about_state(gpu, labels)
            yield ("gpu_fast", labels), (gpu.last_reading_real_s, gpu.fast), _fast(gpu, labels)
            if gpu.slow is not None:
                parts = (self.processes_max, gpu.slow)
                yield ("gpu_slow", labels), parts, self._slow(gpu.slow, labels)
        yield "gpus", tuple(gpu.state for gpu in section.gpus), _counted(section)
        told = tuple((gpu.index, gpu.uuid, gpu.identity, gpu.xids) for gpu in section.gpus)
        yield "xid", (told, log), _xids(section, log)
        yield "sxid", log, _sxids(log)

    def _slow(self, slow: SlowReadings, labels: Labels) -> Iterator[Sample]:
        yield from _slow(slow, labels)
        yield from self._processes(slow, labels)

    def _processes(self, slow: SlowReadings, labels: Labels) -> Iterator[Sample]:
        if slow.processes is None:
            return
        yield "pymon_gpu_processes", labels, len(slow.processes)
        largest = sorted(slow.processes, key=lambda p: (-(p.memory_bytes or 0), p.pid))
        for process in largest[: self.processes_max]:
            instance = "" if process.gpu_instance_id is None else str(process.gpu_instance_id)
            whose = (*labels, str(process.pid), instance)
            if process.memory_bytes is not None:
                yield "pymon_gpu_process_memory_bytes", whose, process.memory_bytes
            if process.sm_utilization_ratio is not None:
                yield "pymon_gpu_process_sm_utilization_ratio", whose, process.sm_utilization_ratio


def _about_driver(driver: Driver) -> Iterator[Sample]:
    yield "pymon_nvml_up", (), driver.state is DriverState.OK
    for state, name in _DRIVER_STATES:
        yield "pymon_nvml_state", (name,), driver.state is state
    if driver.driver_version:
        versions = (driver.driver_version, driver.nvml_version, driver.cuda_version)
        yield "pymon_nvml_info", versions, 1
    yield "pymon_gpu_xid_watch_up", ("nvml",), driver.watches_xids


def _about_cost(cost: NvmlCost) -> Iterator[Sample]:
    yield "pymon_nvml_seconds_total", (), cost.spent_s_total
    yield "pymon_nvml_calls_total", (), cost.calls_total
    for function, code, total in cost.errors_total:
        yield "pymon_nvml_errors_total", (function, code), total
    for function, total in cost.hangs_total:
        yield "pymon_nvml_hangs_total", (function,), total
    yield "pymon_nvml_workers_total", (), cost.workers_total
    yield "pymon_nvml_workers_stuck", (), cost.workers_stuck


def _counted(section: GpuSection) -> Iterator[Sample]:
    yield "pymon_gpus_expected", (), len(section.gpus)
    yield "pymon_gpus_visible", (), sum(gpu.state is GpuState.OK for gpu in section.gpus)


def _about_state(gpu: Gpu, labels: Labels) -> Iterator[Sample]:
    if (who := gpu.identity) is not None:
        flags = ("1" if flag else "0" for flag in (who.unified_memory, who.mig_enabled))
        yield "pymon_gpu_info", (*labels, who.name, who.pci_bus_id, who.serial, *flags), 1
    yield "pymon_gpu_up", labels, gpu.state is GpuState.OK
    for state, name in _GPU_STATES:
        yield "pymon_gpu_state", (*labels, name), gpu.state is state
    for reason, total in gpu.invalid_total:
        yield "pymon_gpu_readings_invalid_total", (*labels, reason), total


def _xids(section: GpuSection | None, log: XidSection | None) -> Iterator[Sample]:
    """By both sources, which may tell of the same error; a GPU that NVML does not know has no labels."""
    gpus = section.gpus if section is not None else ()
    by_pci = {g.identity.pci_bus_id.upper(): (str(g.index), g.uuid) for g in gpus if g.identity}
    counts: dict[tuple[str, ...], float] = {}
    last_s: dict[tuple[str, ...], float] = {}
    told = [((str(g.index), g.uuid), "nvml", xid) for g in gpus for xid in g.xids]
    if log is not None and (section is not None or log.events):  # not on a node without GPUs
        yield "pymon_gpu_xid_watch_up", ("kmsg",), 1
        told += [(by_pci.get(pci, ("", "")), "kmsg", xid) for pci, xid in log.events]
    for labels, source, xid in told:
        code = (*labels, str(xid.xid))
        of_source = (*code, source)
        counts[of_source] = counts.get(of_source, 0) + xid.events_total
        last_s[code] = max(last_s.get(code, 0.0), xid.last_real_s)
    for labels_of_count, total in counts.items():
        yield "pymon_gpu_xid_events_total", labels_of_count, total
    for labels_of_code, seconds in last_s.items():
        yield "pymon_gpu_xid_last_timestamp_seconds", labels_of_code, seconds


def _sxids(log: XidSection | None) -> Iterator[Sample]:
    for one in log.switch_events if log is not None else ():
        labels = (one.pci_bus_id, str(one.sxid), one.severity)
        yield "pymon_nvswitch_sxid_events_total", labels, one.events_total
        yield "pymon_nvswitch_sxid_last_timestamp_seconds", labels, one.last_real_s


def _fast(gpu: Gpu, labels: Labels) -> Iterator[Sample]:
    if gpu.last_reading_real_s is not None:
        yield "pymon_gpu_last_reading_timestamp_seconds", labels, gpu.last_reading_real_s
    if (fast := gpu.fast) is None:
        return
    yield from _present("pymon_gpu_utilization_ratio", labels, fast.utilization_ratio)
    yield from _present("pymon_gpu_memory_utilization_ratio", labels, fast.memory_utilization_ratio)
    yield from _memory("pymon_gpu_memory_", labels, fast.memory)
    yield from _present("pymon_gpu_power_watts", (*labels, "instant"), fast.power_w)
    yield from _present("pymon_gpu_energy_joules_total", labels, fast.energy_j_total)
    for reason, seconds in fast.clocks_event_s_total:
        yield "pymon_gpu_clocks_event_seconds_total", (*labels, reason), seconds
    for name in ("pcie_transmit_bytes_total", "pcie_receive_bytes_total", "pcie_replays_total"):
        yield from _present(f"pymon_gpu_{name}", labels, getattr(fast, name))
    for link in fast.nvlink:
        of_link = (*labels, link.link)
        yield "pymon_gpu_nvlink_transmit_bytes_total", of_link, link.transmit_bytes_total
        yield "pymon_gpu_nvlink_receive_bytes_total", of_link, link.receive_bytes_total
    if fast.activity is not None:
        yield "pymon_gpu_gpm_window_seconds", labels, fast.activity.window_s
    yield from _activity("pymon_gpu_", labels, fast.activity)
    for instance in fast.mig:
        of_instance = (*labels, str(instance.gpu_instance_id))
        who = (str(instance.compute_instance_id), instance.uuid, instance.profile)
        yield "pymon_mig_info", (*of_instance, *who), 1
        yield from _memory("pymon_mig_memory_", of_instance, instance.memory)
        yield from _activity("pymon_mig_", of_instance, instance.activity)


def _slow(slow: SlowReadings, labels: Labels) -> Iterator[Sample]:
    yield from _present("pymon_gpu_power_watts", (*labels, "1s"), slow.power_average_w)
    for kind, watts in slow.power_limits_w:
        yield "pymon_gpu_power_limit_watts", (*labels, kind), watts
    for domain, hertz in slow.clocks_hz:
        yield "pymon_gpu_clock_hertz", (*labels, domain), hertz
    for reason, active in slow.clocks_event_active:
        yield "pymon_gpu_clocks_event_active", (*labels, reason), active
    for sensor, celsius in slow.temperatures_celsius:
        yield "pymon_gpu_temperature_celsius", (*labels, sensor), celsius
    for ecc in slow.ecc:
        where = (ecc.severity, ecc.scope, ecc.location)
        yield "pymon_gpu_ecc_errors_total", (*labels, *where), ecc.errors_total
    for cause, rows in slow.remapped_rows_total:
        yield "pymon_gpu_remapped_rows_total", (*labels, cause), rows
    for name in (*_BOOLS, "recovery_action", "fabric_state", "fabric_status"):
        yield from _present(f"pymon_gpu_{name}", labels, getattr(slow, name))
    for link, kind, errors in slow.nvlink_errors_total:
        yield "pymon_gpu_nvlink_errors_total", (*labels, link, kind), errors


def _memory(prefix: str, labels: Labels, memory: GpuMemory | None) -> Iterator[Sample]:
    for name in _MEMORY if memory is not None else ():
        yield from _present(prefix + name, labels, getattr(memory, name))


def _activity(prefix: str, labels: Labels, activity: GpuActivity | None) -> Iterator[Sample]:
    for name in _RATIOS if activity is not None else ():
        yield from _present(prefix + name, labels, getattr(activity, name))


def _present(name: str, labels: Labels, value: float | None) -> Iterator[Sample]:
    if value is not None:
        yield name, labels, value

import pytest

from pymon.exporters.gpu_samples import GpuSamples
from pymon.model.gpu import (
    Driver,
    DriverState,
    FastReadings,
    GpuProcess,
    GpuState,
    SlowReadings,
    SxidCount,
    XidCount,
    XidSection,
)
from pymon.model.snapshot import Outcome, Snapshot, State
from tests.exporters.gpus import gpu, section


def samples(*sections, processes_max=0, **outcomes):
    told = [Outcome("nvml", State.OK, 0.0, sections[0])] if sections else []
    told += [Outcome("xid", State.OK, 0.0, part) for part in sections[1:]]
    told += [Outcome(name, state, 0.0) for name, state in outcomes.items()]
    found = GpuSamples(processes_max).of(Snapshot(0, 0, tuple(told)))
    return {(name, *labels): value for _, _, part in found for name, labels, value in part}


def test_switched_off_nothing_is_said():
    assert samples() == {}


@pytest.mark.parametrize("state", [State.ABSENT, State.FAILED, State.LATE])
def test_without_a_section_the_library_is_down_and_no_gpu_is_invented(state):
    assert samples(nvml=state) == {("pymon_nvml_up",): 0}


def test_one_state_holds_and_the_expected_count_keeps_those_that_are_gone():
    found = samples(section(gpu(0), gpu(1, GpuState.HUNG, None), gpu(2, GpuState.REMOVED, None)))

    states = {key[3]: value for key, value in found.items() if key[:2] == ("pymon_gpu_state", "1")}
    assert states == {state.value: state is GpuState.HUNG for state in GpuState}
    assert (found["pymon_gpus_expected",], found["pymon_gpus_visible",]) == (3, 1)
    assert found["pymon_gpu_up", "2", "GPU-2"] == 0


def test_a_driver_that_is_away_keeps_its_gpus_and_says_why():
    away = Driver(DriverState.VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch.")
    found = samples(section(gpu(0, GpuState.UNKNOWN, None), driver=away))

    assert found["pymon_nvml_up",] == 0
    assert found["pymon_nvml_state", "version_mismatch"] == 1
    assert found["pymon_gpu_state", "0", "GPU-0", "unknown"] == 1
    assert not [key for key in found if key[0] == "pymon_nvml_info"]


def test_both_sources_of_an_xid_are_told_apart_and_its_newest_time_is_told_once():
    events = (
        (gpu(0).identity.pci_bus_id, XidCount(79, 1, 50.0)),
        ("0000:FF:00.0", XidCount(48, 2, 9.0)),
    )
    found = samples(section(gpu(0, xids=(XidCount(79, 3, 40.0),))), XidSection(events))

    assert found["pymon_gpu_xid_events_total", "0", "GPU-0", "79", "nvml"] == 3
    assert found["pymon_gpu_xid_events_total", "0", "GPU-0", "79", "kmsg"] == 1
    assert found["pymon_gpu_xid_last_timestamp_seconds", "0", "GPU-0", "79"] == 50.0
    assert found["pymon_gpu_xid_events_total", "", "", "48", "kmsg"] == 2
    assert found["pymon_gpu_xid_watch_up", "kmsg"] == 1


def test_the_kernels_log_is_told_of_without_nvml_too():
    found = samples(None, XidSection((("0000:03:00.0", XidCount(79, 1, 5.0)),)))
    assert found["pymon_gpu_xid_events_total", "", "", "79", "kmsg"] == 1


@pytest.mark.parametrize("sections", [(None,), (section(gpu(0)),)])
def test_errors_of_nvswitches_are_told_with_and_without_nvml(sections):
    switch = SxidCount("00000000:C1:00.0", 28006, "fatal", 2, 7.0)
    found = samples(*sections, XidSection((), (switch,)))

    labels = ("00000000:C1:00.0", "28006", "fatal")
    assert found[("pymon_nvswitch_sxid_events_total", *labels)] == 2
    assert found[("pymon_nvswitch_sxid_last_timestamp_seconds", *labels)] == 7.0


def test_processes_are_opt_in_and_capped_by_their_memory():
    crowd = tuple(GpuProcess(pid, pid * 10) for pid in range(1, 501))
    one = section(gpu(0, fast=FastReadings(), slow=SlowReadings(processes=crowd)))

    assert samples(one)["pymon_gpu_processes", "0", "GPU-0"] == 500
    assert not [key for key in samples(one) if key[0].startswith("pymon_gpu_process_")]
    largest = [
        k[3] for k in samples(one, processes_max=3) if k[0] == "pymon_gpu_process_memory_bytes"
    ]
    assert largest == ["500", "499", "498"]


def test_unknown_memory_of_a_process_is_absent():
    one = section(gpu(0, slow=SlowReadings(processes=(GpuProcess(7, None, None, 0.5),))))
    found = samples(one, processes_max=3)

    assert found["pymon_gpu_process_sm_utilization_ratio", "0", "GPU-0", "7", ""] == 0.5
    assert not [key for key in found if key[0] == "pymon_gpu_process_memory_bytes"]

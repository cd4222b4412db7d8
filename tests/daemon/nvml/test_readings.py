"""One thing that a GPU does not tell costs that thing only."""

import time
from collections import Counter

import pytest

from pymon.exporters.gpu_samples import GpuSamples
from pymon.model.gpu import DriverState, GpuActivity
from pymon.model.snapshot import Outcome, Snapshot, State
from pymon.sources.nvml import fast, fields, slow
from tests.daemon.nvml.driver import complete
from tests.daemon.nvml.test_supervisor import OF_ONE_GPU, symbol
from tests.nvml_double import GIB, gpu, mig_gpu, standard_node
from tests.waiting import PATIENCE_S

OF_PROCESSES = {"pymon_gpu_process_memory_bytes", "pymon_gpu_process_sm_utilization_ratio"}


def series(section, index=0):
    """The series of one GPU: family and the labels after gpu and uuid."""
    snapshot = Snapshot(0, 0, (Outcome("nvml", State.OK, 0.0, section),))
    return {
        (name, *([] if name in OF_PROCESSES else labels[2:])): value
        for _, _, part in GpuSamples(4).of(snapshot)
        for name, labels, value in part
        if labels[:1] == (str(index),) and name not in ("pymon_gpu_info", "pymon_gpu_state")
    }


def whole(section):
    return all(one.fast and one.fast.activity and one.slow for one in section.gpus) and section.gpus


# A field's id and the series that it feeds.
FIELDS = {
    "185": ("pymon_gpu_power_watts", "1s"),
    "190": ("pymon_gpu_power_limit_watts", "enforced"),
    "74": ("pymon_gpu_clocks_event_seconds_total", "sw_power_cap"),
    "271": ("pymon_gpu_clocks_event_seconds_total", "hw_power_brake"),
    "82": ("pymon_gpu_temperature_celsius", "memory"),
    "94": ("pymon_gpu_pcie_replays_total",),
    "52": ("pymon_gpu_nvlink_errors_total", "", "replay"),
    "143": ("pymon_gpu_remapped_rows_total", "uncorrected"),
    "144": ("pymon_gpu_row_remap_pending",),
    "145": ("pymon_gpu_row_remap_failure",),
    "230": ("pymon_gpu_recovery_action",),
}
GPM = [f"pymon_gpu_{name}" for name in GpuActivity.__slots__ if name != "window_s"]
GPM += ["pymon_gpu_gpm_window_seconds"]
# A key of the node file and the families that it feeds.
KEYS = {
    "utilization": ["pymon_gpu_utilization_ratio", "pymon_gpu_memory_utilization_ratio"],
    "memory": [f"pymon_gpu_memory_{kind}_bytes" for kind in ("size", "used", "free", "reserved")],
    "clocks_mhz": ["pymon_gpu_clock_hertz"],
    "event_reasons": ["pymon_gpu_clocks_event_active"],
    "ecc": ["pymon_gpu_ecc_errors_total"],
    "fabric": ["pymon_gpu_fabric_state", "pymon_gpu_fabric_status"],
    "processes": ["pymon_gpu_processes", "pymon_gpu_process_memory_bytes"],
    "event_types": [],
    "serial": [],
    "name": [],
    "pci_bus_id": [],
    "mig": [],
}


def test_each_field_that_is_not_supported_leaves_all_others(driver):
    double = driver(standard_node(len(FIELDS) + 1))

    def change(state):
        for one, number in zip(state["gpus"][1:], FIELDS, strict=True):
            one["field_codes"] = {number: 3}

    double.node.change(change)
    section = double.until(whole)
    reference = series(section)
    for index, fed in enumerate(FIELDS.values(), 1):
        assert set(reference) - set(series(section, index)) == {fed}
        assert section.gpus[index].state.value == "ok"


EVERY_FIELD = sorted(
    {number for number, _ in (*fast.wanted("580.126", 0), *slow.wanted(0))}
    - {fields.NVLINK_TRANSMIT, fields.NVLINK_RECEIVE}  # of newer GPUs, asked where 138 and 139 fail
)


@pytest.mark.parametrize("code", [3, 4, 999])
def test_any_one_field_that_fails_costs_one_series_at_most(driver, code):
    """Of the links' bytes both ways or none are told; some have another source and cost nothing."""
    double = driver(standard_node(len(EVERY_FIELD) + 1))

    def change(state):
        for one, number in zip(state["gpus"][1:], EVERY_FIELD, strict=True):
            one["field_codes"] = {str(number): code}

    double.node.change(change)
    section = double.until(whole)
    reference, lost = set(series(section)), Counter()
    for index, number in enumerate(EVERY_FIELD, 1):
        gone = reference - set(series(section, index))
        assert len(gone) <= (2 if number in (138, 139) else 1), (number, gone)
        assert section.gpus[index].state.value == "ok"
        lost.update(gone)
    twice = {name for (name, *_), count in lost.items() if count > 1}
    assert twice <= {
        "pymon_gpu_nvlink_transmit_bytes_total",
        "pymon_gpu_nvlink_receive_bytes_total",
    }
    assert len(lost) >= 20


@pytest.mark.parametrize("code", [2, 3, 4, 6, 13, 15, 16, 25, 999, 12345])
def test_any_one_call_that_fails_costs_its_gpu_only(driver, code):
    double = driver(standard_node(len(OF_ONE_GPU) + 1), call_timeout_s=PATIENCE_S)
    for index, name in enumerate(OF_ONE_GPU, 1):
        double.node.fail(symbol(name), code, gpu=index)
    section = double.until(lambda s: s.gpus and complete(s.gpus[0]) and s.cost.errors_total)
    for _ in range(3):
        section = double.tick()

    assert section.driver.state is DriverState.OK
    assert section.cost.workers_total == 1
    named = {15: "lost", 16: "reset_required", 4: "no_permission"}.get(code, "unknown")
    for one in section.gpus:
        assert one.state.value in ("ok", named)
        assert (one.fast is None) == (one.state.value != "ok")


@pytest.mark.parametrize("code", [3, 4, 999])
def test_each_reading_that_fails_leaves_all_others(driver, code):
    """Not supported, no permission, or an unknown error: each function in turn, one GPU each."""
    functions = {
        "nvmlDeviceGetUtilizationRates": KEYS["utilization"],
        "nvmlDeviceGetClockInfo": KEYS["clocks_mhz"],
        "nvmlDeviceGetTemperature": [],  # the memory's comes with the fields
        "nvmlDeviceGetMemoryErrorCounter": [],  # the totals are asked for instead
        "nvmlDeviceGetGpuFabricInfoV": KEYS["fabric"],
        "nvmlDeviceGetComputeRunningProcesses_v3": KEYS["processes"],
        "nvmlGpmSampleGet": GPM,
        "nvmlDeviceGetSupportedEventTypes": [],
        "nvmlDeviceGetName": [],
    }
    double = driver(standard_node(len(functions) + 1))
    for index, function in enumerate(functions, 1):
        double.node.fail(function, code, gpu=index)
    section = double.until(
        lambda s: (
            all(g.slow for g in s.gpus)
            and sum(g.fast.activity is not None for g in s.gpus) == len(functions)
        )
    )
    reference = {key[0] for key in series(section)}
    for index, gone in enumerate(functions.values(), 1):
        names = {key[0] for key in series(section, index)}
        assert reference - names == set(gone)
        assert section.gpus[index].state.value == "ok"


def test_each_thing_that_a_gpu_lacks_leaves_all_others(driver):
    state = standard_node(len(KEYS) + 1)
    for one, key in zip(state["gpus"][1:], KEYS, strict=True):
        del one[key]
    double = driver(state)
    section = double.until(whole)
    reference = {key[0] for key in series(section)}
    for index, gone in enumerate(KEYS.values(), 1):
        assert reference - {key[0] for key in series(section, index)} == set(gone)


def test_a_gpu_without_memory_of_its_own_is_marked_and_has_no_memory_series(driver):
    state = standard_node(2)
    del state["gpus"][1]["memory"]
    section = driver(state).until(lambda s: len(s.gpus) == 2 and all(g.slow for g in s.gpus))

    assert [one.identity.unified_memory for one in section.gpus] == [False, True]
    assert section.gpus[1].fast.memory is None
    assert section.gpus[1].fast.utilization_ratio == 0.97


def test_no_permission_for_memory_is_no_unified_memory(driver):
    double = driver()
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        double.node.fail(function, 4, gpu=1)
    section = double.until(lambda s: len(s.gpus) == 2 and all(g.slow for g in s.gpus))

    assert not section.gpus[1].identity.unified_memory
    assert section.gpus[1].fast.memory is None


def test_memory_totals_of_zero_are_absent(driver):
    state = standard_node(1)
    state["gpus"][0]["memory"] = {"total": 0, "reserved": 0, "used": 0, "free": 0}
    section = driver(state).until(lambda s: s.gpus and s.gpus[0].slow)

    assert section.gpus[0].fast.memory is None


@pytest.mark.parametrize("stride", [16, 24, 32])
def test_processes_of_three_driver_generations(driver, stride):
    state = standard_node(1)
    state["process_stride"] = stride
    state["gpus"][0]["processes"] = [
        {"pid": 41, "bytes": 5 * GIB}, {"pid": 42, "bytes": 6 * GIB}, {"pid": 0, "bytes": 1},
        {"pid": 4_294_967_295, "bytes": 2},
    ]  # fmt: skip
    (one,) = driver(state).until_read().gpus

    assert [(p.pid, p.memory_bytes) for p in one.slow.processes] == [(41, 5 * GIB), (42, 6 * GIB)]
    assert dict(one.invalid_total)["out_of_range"] >= 2  # pids that cannot be


def test_ratios_that_cannot_be_and_garbage_temperatures_are_dropped_and_counted(driver):
    state = standard_node(2)
    bad = state["gpus"][1]
    bad |= {"utilization": [130, 41], "temperatures": {"0": 65535}}
    bad["gpm"] |= {"2": 100.5}
    bad["fields"] |= {"186": 4_294_967_295, "82": 0}
    section = driver(state).until(whole)
    good, one = section.gpus

    assert one.fast.utilization_ratio is one.fast.activity.sm_active_ratio is None
    assert one.fast.power_w is None
    assert one.slow.temperatures_celsius == ()
    assert one.fast.memory_utilization_ratio == 0.41
    assert dict(one.invalid_total)["out_of_range"] >= 5
    assert set(dict(good.invalid_total).values()) == {0}


def test_byte_counters_of_32_bits_are_absent_without_gpm(driver):
    state = standard_node(1)
    state["gpus"][0] |= {"field_types": {"197": "u32", "198": "u32"}}
    state["gpus"][0]["fields"] |= {"197": 5, "198": 6}
    del state["gpus"][0]["gpm"]
    (one,) = driver(state).until_read().gpus

    assert one.fast.pcie_transmit_bytes_total is one.fast.pcie_receive_bytes_total is None
    assert one.fast.pcie_replays_total == 3


def test_without_byte_counters_the_windows_of_gpm_add_up(driver):
    state = standard_node(1)
    for number in ("197", "198"):
        del state["gpus"][0]["fields"][number]
    state["gpus"][0]["gpm"] |= {"20": 10.0, "21": 30.0}  # MiB/s
    double = driver(state)
    first = double.until(lambda s: s.gpus and s.gpus[0].fast.pcie_receive_bytes_total)

    def grown(section, name):
        return getattr(section.gpus[0].fast, name) - getattr(first.gpus[0].fast, name)

    def passed_s(section):
        """By the double's clock, in the same sweep: its energy grows so fast."""
        return grown(section, "energy_j_total") / 655.5

    last = double.until(lambda s: passed_s(s) > 0.6)
    sent = grown(last, "pcie_transmit_bytes_total")
    assert grown(last, "pcie_receive_bytes_total") == pytest.approx(3 * sent, rel=0.01)
    assert sent == pytest.approx(10 * 2**20 * passed_s(last), rel=0.4)


def test_gpm_that_fails_each_time_takes_no_memory_for_it(driver):
    double = driver(standard_node(1))
    double.until(whole)
    double.node.fail("nvmlGpmSampleGet", 999)
    allocated = sum(n for f, _, n in double.tick().cost.errors_total if f == "nvmlGpmSampleAlloc")
    double.node.fail("nvmlGpmSampleAlloc", 999)  # would be counted if it were called again
    for _ in range(5):
        time.sleep(0.11)  # GPM's shortest window
        section = double.tick()
        assert section.gpus[0].fast.activity is None
    assert sum(n for f, _, n in section.cost.errors_total if f == "nvmlGpmSampleAlloc") == allocated
    double.node.mend()
    double.until(whole)


def test_counters_that_go_backwards_are_dropped_once_and_taken_when_they_stay(driver):
    state = standard_node(1)
    energy = state["gpus"][0]["fields"]["83"]
    state["gpus"][0]["fields"]["83"] = {**energy, "start": energy["start"] + 10**9}
    double = driver(state)
    double.until_read()

    def back(state):
        state["gpus"][0]["fields"]["83"] = energy

    before = double.tick().gpus[0].fast.energy_j_total
    double.node.change(back)
    section = double.until(lambda s: dict(s.gpus[0].invalid_total)["backwards"])
    # A tick that goes on with the sweep before ends with the next one, in which it has stayed.
    assert (section.gpus[0].fast.energy_j_total or 0.0) < before
    section = double.until(lambda s: s.gpus[0].fast.energy_j_total is not None)
    assert section.gpus[0].fast.energy_j_total < before
    assert dict(section.gpus[0].invalid_total)["backwards"] == 1


def test_gpm_that_has_stopped_is_dropped_and_begins_anew(driver):
    double = driver(standard_node(1))
    double.until(whole)
    zeros = {str(number): 0.0 for number in range(1, 14)}
    double.node.change(lambda state: state["gpus"][0]["gpm"].update(zeros))
    section = double.until(lambda s: dict(s.gpus[0].invalid_total)["contradiction"], pause_s=0.15)
    assert section.gpus[0].fast.activity is None
    assert section.gpus[0].fast.utilization_ratio == 0.97

    double.node.change(lambda state: state["gpus"][0]["gpm"].update({"2": 91.25}))
    double.until(whole, pause_s=0.15)


def test_a_gpu_cut_into_instances_has_no_utilisation_of_its_own_even_if_the_driver_says_zero(
    driver,
):
    cut = mig_gpu(0, 3) | {"utilization": [0, 0]}
    (one,) = (
        driver({**standard_node(), "gpus": [cut]})
        .until(lambda s: s.gpus and s.gpus[0].slow and all(m.activity for m in s.gpus[0].fast.mig))
        .gpus
    )

    assert one.fast.utilization_ratio is None
    assert [m.gpu_instance_id for m in one.fast.mig] == [7, 8, 9]
    assert [m.memory.used_bytes for m in one.fast.mig] == [GIB, 2 * GIB, 3 * GIB]
    assert [m.activity.sm_active_ratio for m in one.fast.mig] == [0.4, 0.41, 0.42]
    assert one.fast.mig[0].profile == "1g.18gb"
    assert one.fast.memory.used_bytes == 90 * GIB


def test_compute_instances_that_share_an_instance_count_its_memory_once(driver):
    cut = mig_gpu(0, 2)
    cut["mig"]["instances"][1] |= {"gpu_instance_id": 7, "compute_instance_id": 1}
    (one,) = driver({**standard_node(), "gpus": [cut]}).until_read().gpus

    assert [m.gpu_instance_id for m in one.fast.mig] == [7]


def test_links_one_by_one_instead_of_their_sum(driver):
    (one, _) = driver(per_link=True).until_read().gpus

    assert [link.link for link in one.fast.nvlink] == [str(link) for link in range(18)]
    assert ("3", "recovery", 103) in one.slow.nvlink_errors_total


def test_shares_of_processes_are_asked_for_on_request_only(driver):
    (one, _) = driver().until_read().gpus
    assert one.slow.processes[0].sm_utilization_ratio is None
    (one, _) = driver(process_utilization=True).until_read().gpus
    assert one.slow.processes[0].sm_utilization_ratio == 0.95


def test_unsupported_things_are_asked_for_once_and_not_each_tick(driver):
    state = standard_node(1)
    del state["gpus"][0]["utilization"]
    double = driver(state)
    double.until(lambda s: s.gpus and s.gpus[0].slow)
    for _ in range(5):
        section = double.tick()

    errors = {f: n for f, code, n in section.cost.errors_total if code == "3"}
    assert errors["nvmlDeviceGetUtilizationRates"] == 1
    assert complete(section.gpus[0])
    assert gpu(0)["utilization"]

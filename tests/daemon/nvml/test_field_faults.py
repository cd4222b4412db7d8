"""Faults that GPU exporters have had in the field and that no other test shows; docs/gpu-faults.md lists them all."""

import os
import time
from pathlib import Path

import pytest

from pymon.model.catalog_gpu import GPU_METRICS
from pymon.model.gpu import DriverState
from tests.daemon.nvml.driver import complete, is_up, settings, states
from tests.daemon.nvml.test_metrics import labels_of, page
from tests.daemon.nvml.test_readings import series, whole
from tests.nvml_double import GIB, gpu, mig_gpu, mig_instance, standard_node
from tests.waiting import PATIENCE_S

MIB = 1024**2


def worker_of(double):
    return double.supervisor._child.process.pid


def errors(section, function):
    """How often it answered which code."""
    return {int(code): n for name, code, n in section.cost.errors_total if name == function}


# A GPU that went away


@pytest.mark.parametrize("code", [15, 999])
def test_a_handle_that_was_never_given_is_never_used(driver, code):
    """The double dies of it, as the driver's library does."""
    double = driver(standard_node(3), call_timeout_s=PATIENCE_S)
    double.node.fail("nvmlDeviceGetHandleByIndex_v2", code, gpu=1)
    double.until(lambda s: complete(s.gpus[0]) and complete(s.gpus[2]))
    until_s = (
        time.monotonic() + 1
    )  # three times the period of slow readings, in which it is tried again
    while time.monotonic() < until_s:
        section = double.tick()

    assert section.cost.workers_total == 1
    assert section.gpus[1].fast is None


def test_an_unknown_error_from_every_call_is_a_driver_that_is_away(driver):
    """A container whose device nodes were taken away: everything worked, and fails from some call on."""
    double = driver()
    double.until_read()
    double.node.fail("*", 999)
    section = double.until(lambda s: not is_up(s))

    assert section.driver.state is DriverState.FAILED
    assert "(999)" in section.driver.reason
    assert states(section) == ["unknown", "unknown"]
    double.node.mend()
    double.supervisor._start.at_s = 0
    double.until_read()


def test_every_call_that_hangs_takes_four_workers_and_no_more(driver):
    double = driver(kill=lambda pid: None)
    double.until_read()
    double.supervisor.settings = settings(double.node, init_timeout_s=0.5)
    double.node.fail("*", hang=True)
    section = double.until(lambda s: s.driver.state is DriverState.HUNG and "ok" not in states(s))
    for _ in range(5):
        section = double.tick()

    assert section.cost.workers_total <= 4
    assert all(one.fast is None for one in section.gpus)


# The worker


@pytest.mark.parametrize("fault", ["hang", "crash"])
def test_the_library_is_never_shut_down(driver, fault):
    """That call may race with others and hang or crash: the end of the process lets go as well."""
    double = driver()
    double.until_read()
    double.node.fail("nvmlShutdown", **{fault: True})
    process = double.supervisor._child.process
    double.supervisor._child.sock.close()

    assert process.wait(60) == 0


def test_a_worker_that_crashes_leaves_no_core_behind(driver):
    double = driver()
    double.until_read()
    limits = Path(f"/proc/{worker_of(double)}/limits").read_text().splitlines()

    assert [line.split()[4:6] for line in limits if "core file" in line] == [["0", "0"]]


def test_one_thread_asks_the_library_so_that_no_two_calls_meet_in_it(driver):
    """Samples of GPM that were taken in parallel have crashed it."""
    double = driver({**standard_node(), "gpus": [gpu(0), mig_gpu(1), gpu(2)]})
    for _ in range(20):
        double.tick()
        assert os.listdir(f"/proc/{worker_of(double)}/task") == [str(worker_of(double))]


# What is asked, and how often


def grown(double, ticks):
    """Calls of each tick, the slow readings not due any more."""
    before = double.tick().cost.calls_total
    for _ in range(ticks):
        section = double.tick()
    return (section.cost.calls_total - before) / ticks, section


@pytest.mark.parametrize("count", [1, 8])
def test_a_tick_asks_each_gpu_five_things_by_one_worker_that_stays(driver, count):
    """The driver holds a lock for each: fields, utilisation, memory, and two calls of GPM; one more for all events."""
    double = driver(standard_node(count), slow_s=3600.0, call_timeout_s=PATIENCE_S)
    double.until(whole)
    calls, section = grown(double, 10)

    assert calls <= 5 * count + 1 + 1  # and the number of GPUs in one of ten
    assert section.cost.workers_total == 1


def test_seven_instances_cost_three_calls_each_and_no_more(driver):
    double = driver({**standard_node(), "gpus": [mig_gpu(0)]}, slow_s=3600.0)
    double.until(
        lambda s: s.gpus and s.gpus[0].slow and all(m.activity for m in s.gpus[0].fast.mig)
    )
    calls, _ = grown(double, 10)

    assert calls <= 3 * 7 + 5 + 2


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetPcieThroughput",  # blocks for 20 ms
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetFanSpeed",
    ],
)
def test_what_is_dear_is_not_asked_in_a_tick(driver, function):
    double = driver(slow_s=3600.0, call_timeout_s=PATIENCE_S)
    double.until(whole)
    double.node.fail(function, crash=True)
    for _ in range(10):
        section = double.tick()

    assert section.cost.workers_total == 1


def test_a_gpu_before_hopper_is_asked_for_no_activity(driver):
    """Counting before Hopper takes the counters from profilers, and its loss has frozen GPUs."""
    state = standard_node(1)
    del state["gpus"][0]["gpm"]
    double = driver(state, call_timeout_s=PATIENCE_S)
    for function in ("nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"):
        double.node.fail(function, crash=True)
    (one,) = double.until_read().gpus

    assert one.fast.activity is None
    assert double.tick().cost.workers_total == 1


def test_activity_without_permission_is_absent_and_says_why(driver):
    double = driver()
    double.node.fail("nvmlGpmSampleGet", 4, gpu=1)
    section = double.until(lambda s: s.gpus and s.gpus[0].fast.activity and complete(s.gpus[1]))
    for _ in range(5):
        section = double.tick()

    assert section.gpus[1].fast.activity is None
    assert errors(section, "nvmlGpmSampleGet") == {4: 1}
    assert 'pymon_nvml_errors_total{function="nvmlGpmSampleGet",code="4"} 1' in page(section)


def test_one_metric_of_activity_that_is_not_told_is_absent_and_not_zero(driver):
    state = standard_node(1)
    del state["gpus"][0]["gpm"]["5"]
    (one,) = driver(state).until(whole).gpus

    assert one.fast.activity.tensor_active_ratio is None
    assert one.fast.activity.sm_active_ratio == 0.9125


def test_ticks_that_come_too_soon_take_no_sample_of_activity(driver):
    """NVML wants more than a tenth of a second between two."""
    double = driver(standard_node(1))
    double.until(whole)
    for _ in range(30):
        assert double.tick().gpus[0].fast.activity.window_s > 0.1


def test_an_event_wait_that_fails_is_one_line_and_no_flood(driver, caplog):
    double = driver()
    double.node.fail("nvmlEventSetWait_v2", 999)
    double.until_read()
    for _ in range(20):
        double.tick()

    section = double.tick()
    assert len(caplog.records) <= 1
    assert errors(section, "nvmlEventSetWait")[999] <= 2
    assert not section.driver.watches_xids  # none counted would not mean none seen
    double.node.mend()
    double.until(lambda s: s.driver.watches_xids)


def test_a_lost_gpu_does_not_take_the_others_events_with_it(driver):
    double = driver(call_timeout_s=PATIENCE_S)
    double.until(lambda s: s.driver.watches_xids and all(map(complete, s.gpus)))
    double.node.fail("*", 15, gpu=1)
    double.until(lambda s: states(s) == ["ok", "lost"])
    event = {"at_s": 0, "gpu": 0, "xid": 31}
    double.node.change(lambda state: state["events"].append(event))
    section = double.until(lambda s: s.gpus[0].xids)

    assert [(x.xid, x.events_total) for x in section.gpus[0].xids] == [(31, 1)]
    assert section.driver.watches_xids
    assert section.cost.workers_total == 1


def test_a_gpu_that_comes_back_is_watched_anew(driver):
    double = driver()
    double.until(lambda s: s.driver.watches_xids and all(map(complete, s.gpus)))
    double.node.fail("nvmlDeviceGetFieldValues", 15, gpu=1)
    double.until(lambda s: states(s) == ["ok", "lost"])
    double.node.mend()
    double.node.fail("nvmlDeviceRegisterEvents", 999)  # would be counted if it were called
    section = double.until_read()

    assert errors(section, "nvmlDeviceRegisterEvents") == {999: 1}


def test_a_set_of_events_that_cannot_be_freed_hangs_the_events_only(driver):
    double = driver()
    double.until_read()
    double.node.fail("nvmlEventSetFree", hang=True)
    double.node.fail("nvmlEventSetWait_v2", 999)
    section = double.until(lambda s: s.cost.hangs_total and all(map(complete, s.gpus)))

    assert section.cost.hangs_total == (("nvmlEventSetFree", 1),)


# Processes


def test_processes_that_idled_when_the_daemon_began_are_told_of_as_soon_as_they_work(driver):
    state = standard_node(1)
    state["gpus"][0]["process_utilization"] = []  # the driver answers NOT_FOUND
    double = driver(state, process_utilization=True)
    (one,) = double.until_read().gpus
    assert one.slow.processes[0].sm_utilization_ratio is None

    def work(state):
        state["gpus"][0]["process_utilization"] = [{"pid": 4000, "sm": 95}]

    double.node.change(work)
    section = double.until(lambda s: s.gpus[0].slow.processes[0].sm_utilization_ratio is not None)
    assert section.gpus[0].slow.processes[0].sm_utilization_ratio == 0.95
    assert errors(section, "nvmlDeviceGetProcessUtilization") == {}  # to idle is no error


def test_of_several_samples_of_a_process_the_newest_counts(driver):
    """The driver's buffer holds those of a while, in no order."""
    state = standard_node(1)
    state["gpus"][0]["process_utilization"] = [
        {"pid": 4000, "sm": 10, "timestamp_us": 1_000_000},
        {"pid": 4000, "sm": 70, "timestamp_us": 3_000_000},
        {"pid": 4000, "sm": 30, "timestamp_us": 2_000_000},
    ]
    (one,) = driver(state, process_utilization=True).until_read().gpus

    assert one.slow.processes[0].sm_utilization_ratio == 0.7


def test_a_share_of_a_process_above_one_is_dropped(driver):
    state = standard_node(1)
    state["gpus"][0]["process_utilization"] = [{"pid": 4000, "sm": 4_294_967_295}]
    (one,) = driver(state, process_utilization=True).until_read().gpus

    assert one.slow.processes[0].sm_utilization_ratio is None
    assert dict(one.invalid_total)["out_of_range"] >= 1


def test_the_series_of_a_process_end_with_it(driver):
    state = standard_node(1)
    state["gpus"][0]["processes"] = [{"pid": 41, "bytes": GIB}, {"pid": 42, "bytes": GIB}]
    double = driver(state)
    assert {p.pid for p in double.until_read().gpus[0].slow.processes} == {41, 42}
    double.node.change(lambda state: state["gpus"][0]["processes"].pop(0))
    section = double.until(lambda s: len(s.gpus[0].slow.processes) == 1)

    assert 'pid="41"' not in page(section)
    assert 'pid="42"' in page(section)


def test_what_is_the_whole_gpus_is_laid_at_no_process_job_or_instance():
    """A shared GPU's use cannot be split: who shares it stands on other series, to be joined."""
    whose = {"pid", "job_id", "rank", "user", "pod", "container", "gpu_instance_id"}
    with_owner = {metric.name for metric in GPU_METRICS if whose & set(metric.labels)}

    assert {
        name for name in with_owner if not name.startswith(("pymon_gpu_process_", "pymon_mig_"))
    } == set()


# MIG


def test_power_and_heat_of_a_cut_gpu_stand_there_once(driver):
    double = driver({**standard_node(), "gpus": [mig_gpu(0)]})
    labels = labels_of(page(double.until_read()))

    of_parent = [
        dict(pairs)
        for name, pairs in labels
        if name in ("pymon_gpu_power_watts", "pymon_gpu_temperature_celsius")
    ]
    assert len(of_parent) == 2 + 2  # instant and average; die and memory
    assert {name for name, pairs in labels if "gpu_instance_id" in dict(pairs)} <= {
        metric.name
        for metric in GPU_METRICS
        if metric.name.startswith(("pymon_mig_", "pymon_gpu_process_"))
    }


@pytest.mark.parametrize("code", [2, 3, 4, 6, 999])
@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
    ],
)
def test_instances_that_may_not_be_opened_cost_themselves_only(driver, function, code):
    """As without the device nodes below /dev/nvidia-caps."""
    double = driver({**standard_node(), "gpus": [mig_gpu(0), gpu(1)]})
    double.node.fail(function, code, gpu=0)
    section = double.until_read()

    assert section.gpus[0].fast.mig == ()
    assert section.gpus[0].fast.power_w is not None


def test_one_instance_that_cannot_be_read_costs_itself_only(driver):
    double = driver({**standard_node(), "gpus": [mig_gpu(0, 3)]})
    double.node.fail("nvmlDeviceGetMemoryInfo_v2", 999, gpu=0, mig=1)
    double.node.fail("nvmlDeviceGetMemoryInfo", 999, gpu=0, mig=1)
    section = double.until(
        lambda s: s.gpus and s.gpus[0].slow and all(m.activity for m in s.gpus[0].fast.mig)
    )

    assert [m.memory is None for m in section.gpus[0].fast.mig] == [False, True, False]


def test_an_instance_that_is_made_anew_under_its_old_number_is_read_at_once(driver):
    double = driver({**standard_node(), "gpus": [mig_gpu(0, 2)]})
    double.until(lambda s: s.gpus and s.gpus[0].fast and len(s.gpus[0].fast.mig) == 2)
    for count in (
        0,
        1,
    ):  # destroyed while it is read: what the driver answers then must not be remembered
        double.node.change(
            lambda state, count=count: state["gpus"].__setitem__(0, mig_gpu(0, count))
        )
        double.until(lambda s, count=count: len(s.gpus[0].fast.mig) == count)

    def again(state):
        fresh = mig_instance(1) | {"uuid": "MIG-00000000-0000-4000-8000-0000000000ff"}
        state["gpus"][0]["mig"]["instances"] = [mig_instance(0), fresh]

    double.node.change(again)
    section = double.until(
        lambda s: (
            len(s.gpus[0].fast.mig) == 2
            and all(m.activity and m.memory for m in s.gpus[0].fast.mig)
        )
    )
    assert section.gpus[0].fast.mig[1].memory.used_bytes == 2 * GIB


# Readings that are no readings


def test_a_gpu_that_answers_zero_to_everything_is_told_of_as_little_as_it_tells(driver):
    """As on boards whose library answers success and fills in nothing."""
    nothing = gpu(0) | {
        "memory": {"total": 0, "reserved": 0, "used": 0, "free": 0},
        "temperatures": {"0": 0},
        "processes": [{"pid": 0, "bytes": 0}, {"pid": 0, "bytes": 0}],
        "power_mw": 0,
    }
    nothing["fields"] = dict.fromkeys(nothing["fields"], 0)
    nothing["clocks_mhz"] = dict.fromkeys(nothing["clocks_mhz"], 0)
    section = driver({**standard_node(), "gpus": [nothing]}).until(
        lambda s: s.gpus and s.gpus[0].slow
    )
    told = {key[0] for key in series(section)}

    assert not {name for name in told if "memory_" in name and name.endswith("_bytes")}
    assert not told & {
        "pymon_gpu_temperature_celsius",
        "pymon_gpu_power_watts",
        "pymon_gpu_power_limit_watts",
    }
    assert not told & {"pymon_gpu_clock_hertz", "pymon_gpu_process_memory_bytes"}


def test_a_gpu_that_idles_says_zero_and_is_not_silent(driver):
    idle = gpu(0) | {"utilization": [0, 0], "processes": [], "process_utilization": []}
    idle["gpm"] = dict.fromkeys(idle["gpm"], 0.0)
    (one,) = driver({**standard_node(), "gpus": [idle]}, process_utilization=True).until(whole).gpus

    assert one.fast.utilization_ratio == one.fast.activity.sm_active_ratio == 0.0
    assert one.slow.processes == ()


def test_used_free_and_reserved_are_the_size(driver):
    for one in driver({**standard_node(), "gpus": [gpu(0), mig_gpu(1)]}).until_read().gpus:
        for memory in (one.fast.memory, *(instance.memory for instance in one.fast.mig)):
            assert (
                memory.used_bytes + memory.free_bytes + memory.reserved_bytes == memory.size_bytes
            )


@pytest.mark.parametrize(
    "memory",
    [
        {"total": 8 * GIB, "reserved": 0, "used": 9 * GIB, "free": 0},
        {"total": 8 * GIB, "reserved": 0, "used": 0, "free": 9 * GIB},
    ],
)
def test_memory_whose_parts_are_more_than_the_whole_is_dropped(driver, memory):
    state = standard_node(2)
    state["gpus"][1]["memory"] = memory
    section = driver(state).until(lambda s: len(s.gpus) == 2 and all(g.slow for g in s.gpus))

    assert section.gpus[1].fast.memory is None
    assert dict(section.gpus[1].invalid_total)["out_of_range"] >= 1
    assert complete(section.gpus[0])


def test_a_reserve_that_does_not_fit_is_dropped_alone(driver):
    state = standard_node(1)
    state["gpus"][0]["memory"]["reserved"] = 2**64 - MIB
    (one,) = driver(state).until_read().gpus

    assert one.fast.memory.reserved_bytes is None
    assert one.fast.memory.used_bytes == 90 * GIB
    assert dict(one.invalid_total)["out_of_range"] >= 1


def test_memory_that_nvml_marks_as_not_available_is_absent(driver):
    state = standard_node(1)
    state["gpus"][0]["memory"] |= {"total": 2**64 - 1}
    (one,) = driver(state).until(lambda s: s.gpus and s.gpus[0].slow).gpus

    assert one.fast.memory is None
    assert set(dict(one.invalid_total).values()) == {0}


def test_nothing_that_is_absent_is_written_as_a_number(driver):
    state = standard_node(2)
    state["gpus"][1] = {"uuid": state["gpus"][1]["uuid"]}
    section = driver(state).until(
        lambda s: len(s.gpus) == 2 and s.gpus[1].slow and complete(s.gpus[0])
    )
    values = {key[0] for key in series(section, 1)}

    assert section.gpus[1].state.value == "ok"
    assert values <= {
        "pymon_gpu_up",
        "pymon_gpu_readings_invalid_total",
        "pymon_gpu_last_reading_timestamp_seconds",
        "pymon_gpu_pcie_transmit_bytes_total",
        "pymon_gpu_pcie_receive_bytes_total",
    }


def test_a_fabric_that_failed_to_come_up_is_no_complete_one(driver):
    """The state says completed once the attempt has ended, also where it ended in an error."""
    state = standard_node(2)
    state["gpus"][1]["fabric"] |= {"state": 3, "status": 999}
    section = driver(state).until_read()

    assert [one.slow.fabric_status for one in section.gpus] == [0, 999]

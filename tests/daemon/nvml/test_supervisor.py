"""Bad states of GPUs and drivers: the healthy GPUs go on, and the state of the others is told."""

import os
import signal
import time

import pytest

from pymon.model.gpu import DriverState, GpuState
from pymon.sources.nvml.announce import CALLS
from tests.daemon.nvml.driver import CALL_S, complete, is_up, settings, states
from tests.nvml_double import gpu, mig_gpu, standard_node, uuid_of, without
from tests.waiting import PATIENCE_S, until

# nvidia-ml-py's name for a call and the library's, where they differ.
SYMBOLS = {
    "nvmlInit": "nvmlInitWithFlags",
    "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo": "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlEventSetWait": "nvmlEventSetWait_v2",
    "nvmlSystemGetCudaDriverVersion": "nvmlSystemGetCudaDriverVersion_v2",
}
OF_THE_DRIVER = {name for name in CALLS if name.startswith(("nvmlInit", "nvmlSystem"))}
OF_THE_DRIVER |= {"nvmlDeviceGetCount"}
OF_EVENTS = {"nvmlEventSetCreate", "nvmlEventSetWait", "nvmlDeviceRegisterEvents"}
AFTER_EVENTS = {"nvmlEventSetFree"}  # called where a wait failed
FALLBACKS = {  # asked only where something else is not supported
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlGpmMigSampleGet",
    "nvmlDeviceGetProcessUtilization",
    "nvmlGpmSampleAlloc",  # about no GPU in the double
}
OF_ONE_GPU = [
    name for name in CALLS if name not in OF_THE_DRIVER | OF_EVENTS | AFTER_EVENTS | FALLBACKS
]
NEEDS_MIG = [name for name in sorted(FALLBACKS) if "Mig" in name or "Instance" in name]


def symbol(name):
    return SYMBOLS.get(name, name)


def test_a_healthy_node_is_read_within_two_ticks(driver):
    double = driver()
    section = double.until_read()

    assert section.driver.driver_version == "580.126.09"
    assert section.driver.double
    assert section.cost.workers_total == 1
    double.until(lambda s: all(gpu.fast.activity for gpu in s.gpus))


@pytest.mark.parametrize("name", OF_ONE_GPU)
def test_a_call_about_one_gpu_that_hangs_costs_that_gpu_only(driver, name):
    double = driver()
    double.node.fail(symbol(name), gpu=1, hang=True)

    section = double.until(lambda s: states(s) == ["ok", "hung"] and complete(s.gpus[0]))

    assert section.gpus[1].reason == f"{name} does not return"
    assert section.gpus[1].fast is section.gpus[1].slow is None
    assert section.cost.hangs_total == ((name, 1),)
    assert is_up(section)


@pytest.mark.parametrize("name", NEEDS_MIG)
def test_a_call_about_an_instance_that_hangs_costs_its_gpu_only(driver, name):
    double = driver({**standard_node(), "gpus": [gpu(0), mig_gpu(1)]})
    double.node.fail(symbol(name), gpu=1, hang=True)

    double.until(lambda s: states(s) == ["ok", "hung"] and complete(s.gpus[0]))


@pytest.mark.parametrize("name", sorted(OF_EVENTS))
def test_an_event_call_that_hangs_costs_the_events_only(driver, name):
    double = driver()
    double.node.fail(name if name != "nvmlEventSetWait" else symbol(name), hang=True)

    section = double.until(lambda s: s.cost.hangs_total and s.gpus and all(map(complete, s.gpus)))

    assert section.cost.hangs_total == ((name, 1),)
    assert not section.driver.watches_xids


@pytest.mark.parametrize("name", ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"])
def test_a_hang_before_any_gpu_makes_all_unknown_with_back_off(driver, name):
    double = driver()
    double.until_read()
    double.supervisor.settings = settings(double.node, init_timeout_s=1.0)
    double.supervisor._renew("a test")
    double.node.fail(symbol(name), hang=True)

    section = double.until(lambda s: s.driver.state is DriverState.HUNG)
    workers = section.cost.workers_total

    assert states(section) == ["unknown", "unknown"]
    assert section.driver.reason == f"{name} does not return"
    assert double.tick().cost.workers_total == workers
    double.node.mend()
    double.supervisor.settings = settings(double.node)
    double.supervisor._start.at_s = 0
    assert double.until_read().driver.state is DriverState.OK


def test_a_worker_that_takes_long_to_start_is_waited_for_whatever_nvml_init_may_take(driver):
    assert driver(init_timeout_s=0.1).until_read().cost.workers_total == 1


def test_the_gpu_before_and_the_gpu_behind_a_hung_one_stay_complete_while_it_is_found_out(
    driver, monkeypatch
):
    monkeypatch.setattr("pymon.daemon.nvml.supervisor.WAIT_S", PATIENCE_S)  # for the next worker
    double = driver(standard_node(4))
    double.until_read()
    double.node.fail("nvmlDeviceGetUtilizationRates", gpu=1, hang=True)

    def is_found_out(section):
        assert [complete(section.gpus[index]) for index in (0, 2, 3)] == [True] * 3
        return states(section) == ["ok", "hung", "ok", "ok"]

    double.until(is_found_out)


def test_a_gpu_that_hung_is_asked_again_and_comes_back(driver):
    double = driver()
    double.node.fail("nvmlDeviceGetUtilizationRates", gpu=1, hang=True)
    double.until(lambda s: states(s) == ["ok", "hung"])
    double.node.mend()
    assert states(double.tick()) == ["ok", "hung"]

    double.supervisor._skips.try_all(0)
    double.until_read()


def test_workers_that_no_signal_ends_are_not_waited_for_and_never_more_than_four(driver):
    double = driver(standard_node(8), kill=lambda pid: None)
    for index in range(8):
        double.node.fail("nvmlDeviceGetUtilizationRates", gpu=index, hang=True)

    section = double.until(lambda s: s.driver.state is DriverState.HUNG)

    assert section.cost.workers_stuck == 4
    assert section.driver.reason == "4 workers are stuck in the driver"
    for _ in range(3):
        assert double.tick().cost.workers_total == 4


def test_a_hung_gpu_is_not_asked_again_while_a_worker_is_stuck_at_it(driver):
    double = driver(kill=lambda pid: None)
    double.node.fail("nvmlDeviceGetUtilizationRates", gpu=1, hang=True)
    double.until(lambda s: states(s) == ["ok", "hung"])
    double.supervisor._skips.try_all(0)
    until_s = time.monotonic() + 3 * CALL_S
    while time.monotonic() < until_s:
        assert double.tick().cost.workers_total == 2

    double.node.mend()
    os.kill(double.supervisor._stuck[0].process.pid, signal.SIGKILL)
    double.until_read()


def test_a_hung_gpu_is_not_asked_again_where_that_would_take_the_last_worker(driver):
    double = driver(standard_node(4), kill=lambda pid: None)
    for index in range(3):
        double.node.fail("nvmlDeviceGetUtilizationRates", gpu=index, hang=True)
    double.until(lambda s: states(s) == ["hung"] * 3 + ["ok"])
    double.supervisor._skips.try_all(0)

    until_s = time.monotonic() + 2 * CALL_S
    while time.monotonic() < until_s:
        assert complete(double.tick().gpus[3])


@pytest.mark.parametrize(
    ("code", "state"),
    [(15, "lost"), (16, "reset_required"), (4, "no_permission"), (999, "unknown")],
)
@pytest.mark.parametrize("function", ["*", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_gpu_that_answers_with_an_error_only_costs_itself(driver, code, state, function):
    double = driver(standard_node(3))
    double.node.fail(function, code, gpu=1)

    section = double.until(lambda s: states(s) == ["ok", state, "ok"] and complete(s.gpus[2]))

    assert section.gpus[1].fast is None
    assert f"({code})" in section.gpus[1].reason
    double.node.mend()
    double.until_read()


def test_a_gpu_lost_on_the_way_keeps_its_name_and_loses_its_readings(driver):
    double = driver()
    double.until_read()
    double.node.fail("*", 15, gpu=0)

    section = double.until(lambda s: states(s) == ["lost", "ok"])

    assert section.gpus[0].uuid == uuid_of(0)
    assert section.gpus[0].identity.name == "NVIDIA H200"
    assert section.gpus[0].fast is section.gpus[0].slow is None
    assert section.gpus[0].last_reading_real_s == pytest.approx(time.time(), abs=PATIENCE_S)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (9, DriverState.NO_DRIVER),
        (12, DriverState.NO_LIBRARY),
        (18, DriverState.VERSION_MISMATCH),
        (4, DriverState.NO_PERMISSION),
        (999, DriverState.FAILED),
    ],
)
def test_a_driver_that_does_not_come_up_says_why_and_is_taken_when_it_does(driver, code, state):
    double = driver()
    double.node.fail("nvmlInitWithFlags", code)
    section = double.until(lambda s: s.driver.state is state)
    assert f"({code})" in section.driver.reason
    assert section.gpus == ()
    assert ("nvmlInit", str(code), 1) in section.cost.errors_total

    double.node.mend()
    double.supervisor._start.at_s = 0
    double.until_read()


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_driver_that_goes_away_and_comes_back_needs_no_restart(driver, code):
    double = driver()
    double.until_read()
    double.node.fail("*", code)
    section = double.until(lambda s: not is_up(s))
    assert states(section) == ["unknown", "unknown"]

    double.node.mend()
    section = double.until_read()
    assert section.cost.workers_total >= 2  # a library is loaded anew in a new process only


def test_without_a_library_there_is_none(driver, monkeypatch):
    double = driver(library="")
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    section = double.until(lambda s: s.driver.state is DriverState.NO_LIBRARY)

    assert section.gpus == ()
    assert double.supervisor._start.at_s > time.monotonic() + 30  # such a node pays nothing


def test_a_library_that_cannot_be_loaded_is_none(driver, tmp_path):
    (tmp_path / "text").write_text("no library")
    double = driver(library=str(tmp_path / "text"))

    double.until(lambda s: s.driver.state is DriverState.NO_LIBRARY)


def test_a_worker_that_dies_in_the_library_costs_the_gpu_it_was_at(driver):
    double = driver()
    double.until_read()
    double.node.fail("nvmlDeviceGetUtilizationRates", gpu=1, crash=True)

    section = double.until(lambda s: s.gpus[1].state is GpuState.UNKNOWN)
    assert (
        section.gpus[1].reason
        == "the worker was killed by signal 11 in nvmlDeviceGetUtilizationRates"
    )
    double.until(lambda s: complete(s.gpus[0]))


def test_a_worker_that_dies_between_calls_is_replaced(driver):
    double = driver()
    double.until_read()
    for dead in (1, 2):
        os.kill(double.supervisor._child.process.pid, signal.SIGKILL)
        double.until(
            lambda s, dead=dead: s.cost.workers_total > dead and all(map(complete, s.gpus))
        )


def test_a_worker_that_is_stopped_is_replaced(driver, monkeypatch):
    monkeypatch.setattr("pymon.daemon.nvml.supervisor.SILENT_S", 0.5)
    double = driver()
    double.until_read()
    os.kill(double.supervisor._child.process.pid, signal.SIGSTOP)

    double.until(lambda s: s.cost.workers_total > 1 and all(map(complete, s.gpus)))


def test_a_gpu_that_is_unplugged_is_removed_and_one_that_is_plugged_in_appears(driver, monkeypatch):
    double = driver(standard_node(3))
    double.until_read()
    double.node.change(lambda state: state["gpus"].pop(0))
    section = double.until(lambda s: "removed" in states(s))

    by_uuid = {gpu.uuid: gpu.state.value for gpu in section.gpus}
    assert by_uuid == {uuid_of(0): "removed", uuid_of(1): "ok", uuid_of(2): "ok"}

    double.node.change(lambda state: state["gpus"].append(gpu(7)))
    section = double.until(lambda s: len(s.gpus) == 4)
    assert {g.uuid: g.index for g in section.gpus if g.state is GpuState.OK} == {
        uuid_of(1): 0,
        uuid_of(2): 1,
        uuid_of(7): 2,
    }


def test_a_driver_that_was_replaced_is_seen_by_its_marks(driver, tmp_path, monkeypatch):
    monkeypatch.setattr("pymon.daemon.nvml.marks.LOOK_EACH_S", 0.0)
    double = driver()
    double.until_read()
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: 590.48")

    double.until(lambda s: s.cost.workers_total > 1 and all(map(complete, s.gpus)))


def test_a_late_driver_is_seen_by_its_marks_and_not_waited_for(driver, tmp_path, monkeypatch):
    monkeypatch.setattr("pymon.daemon.nvml.marks.LOOK_EACH_S", 0.0)
    double = driver()
    double.node.fail("nvmlInitWithFlags", 12)
    double.until(lambda s: s.driver.state is DriverState.NO_LIBRARY)
    double.supervisor._start.at_s = time.monotonic() + 600
    double.node.mend()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()

    double.until_read()


def test_mig_instances_come_and_go(driver):
    double = driver()
    double.until_read()
    double.node.change(lambda state: state["gpus"].__setitem__(1, mig_gpu(1, 2)))
    section = double.until(lambda s: len(s.gpus[1].fast.mig if s.gpus[1].fast else ()) == 2)

    assert section.gpus[1].fast.utilization_ratio is None
    assert section.gpus[1].identity.mig_enabled
    assert complete(section.gpus[0])
    double.node.change(lambda state: state["gpus"].__setitem__(1, mig_gpu(1, 3)))
    double.until(lambda s: len(s.gpus[1].fast.mig if s.gpus[1].fast else ()) == 3)
    double.node.change(lambda state: state["gpus"].__setitem__(1, gpu(1)))
    double.until(lambda s: s.gpus[1].fast and s.gpus[1].fast.utilization_ratio == 0.97)


def test_the_driver_is_let_go_on_request_and_taken_again(driver):
    double = driver()
    double.until_read()
    double.supervisor.release(60)
    section = double.until(lambda s: s.driver.state is DriverState.RELEASED)
    until(lambda: not double.supervisor.holds_driver)
    assert states(section) == ["unknown", "unknown"]

    double.supervisor.release(0)
    double.until_read()


def test_closing_ends_all_workers_and_waits_for_none(driver):
    double = driver(kill=None)
    double.node.fail("nvmlDeviceGetUtilizationRates", gpu=1, hang=True)
    section = double.until(lambda s: s.gpus and double.supervisor._child)
    child, workers = double.supervisor._child, section.cost.workers_total

    double.supervisor.close()
    assert child.process.wait(PATIENCE_S) == -signal.SIGKILL
    assert double.tick().cost.workers_total == workers  # and starts no other


@pytest.mark.parametrize(
    "symbols",
    [
        ("nvmlDeviceGetFieldValues",),
        ("nvmlDeviceGetMemoryInfo_v2",),
        ("nvmlDeviceGetCurrentClocksEventReasons",),
        ("nvmlDeviceGetComputeRunningProcesses_v3",),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
        (
            "nvmlGpmQueryDeviceSupport",
            "nvmlGpmSampleAlloc",
            "nvmlGpmSampleGet",
            "nvmlGpmMetricsGet",
        ),
        ("nvmlEventSetWait_v2",),
        ("nvmlDeviceGetTemperature",),
        ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMigMode"),
    ],
)
def test_an_old_driver_without_a_symbol_gives_everything_else(driver, tmp_path, symbols):
    library = without(tmp_path / "old", *symbols)
    section = driver(library=str(library)).until_read()

    for one in section.gpus:
        assert one.fast.utilization_ratio == 0.97
        assert one.fast.energy_j_total > 0
        assert dict(one.slow.clocks_hz)["sm"] == 1965e6
        assert dict(one.slow.temperatures_celsius)["gpu"] == 63
        assert dict(one.slow.clocks_event_active)["sw_power_cap"]
        assert [process.pid for process in one.slow.processes] == [4000 + one.index]


def test_a_large_node_is_read_whole(driver):
    def crowd(index):
        one = mig_gpu(index)
        one["processes"] = [
            {"pid": 1000 + n, "bytes": n * 2**20, "gpu_instance_id": 7 + n % 7} for n in range(500)
        ]
        return one

    section = driver(
        {**standard_node(), "gpus": [crowd(index) for index in range(16)]}
    ).until_read()

    assert len(section.gpus) == 16
    assert {len(one.fast.mig) for one in section.gpus} == {7}
    assert {len(one.slow.processes) for one in section.gpus} == {500}


def test_an_xid_storm_is_counted_by_code_and_hides_nothing(driver):
    state = standard_node()
    state["events"] = [
        {"at_s": 0, "gpu": 1, "xid": 79, "count": 1},
        {"at_s": 0, "gpu": 0, "xid": 31, "count": 5000},
        {"at_s": 0, "gpu": 0, "xid": 999, "count": 2},
    ]
    double = driver(state)
    counts = lambda s, i: {x.xid: x.events_total for x in s.gpus[i].xids}  # noqa: E731
    section = double.until(lambda s: s.gpus and counts(s, 0) == {31: 5000, 999: 2})

    assert counts(section, 1) == {79: 1}
    assert section.gpus[1].xids[0].last_real_s == pytest.approx(time.time(), abs=PATIENCE_S)
    assert section.driver.watches_xids
    assert all(map(complete, section.gpus))


def test_an_event_wait_that_fails_at_once_is_left_alone_for_a_while(driver):
    double = driver()
    double.node.fail("nvmlEventSetWait_v2", 999)
    double.until_read()
    for _ in range(20):
        double.tick()

    failed = {f: n for f, code, n in double.tick().cost.errors_total if code == "999"}
    assert failed["nvmlEventSetWait"] <= 2


def test_a_worker_that_gets_no_processor_is_not_taken_for_one_that_hangs(driver):
    """A runnable worker sleeps in no call; one that spins in the library for long is given up all the same."""
    double = driver()
    double.node.fail("nvmlDeviceGetUtilizationRates", gpu=1, spin=True)
    until_s = time.monotonic() + 3 * CALL_S
    while time.monotonic() < until_s:
        assert "hung" not in states(double.tick())

    section = double.until(lambda s: states(s) == ["ok", "hung"])
    assert section.gpus[1].reason == "nvmlDeviceGetUtilizationRates does not return"

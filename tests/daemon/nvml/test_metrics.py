"""What is exported of the double's standard node, whole: against a golden page, promtool and nvidia-ml-py itself."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pymon.exporters.gpu_samples import GpuSamples
from pymon.exporters.prometheus import DaemonStats, PrometheusRenderer
from pymon.model.catalog_gpu import GPU_METRICS, NVML_METRICS
from pymon.model.snapshot import Outcome, Snapshot, State
from tests.nvml_double import STATE, gpu, mig_gpu, standard_node
from tests.waiting import PATIENCE_S

GOLDEN = Path(__file__).parents[2] / "golden" / "nvml.prom"
STATS = DaemonStats("0.0.0", 0.0, None, 0, {}, {})
VOLATILE = re.compile(
    r"^(pymon_nvml_(?:seconds|calls)_total|pymon_gpu_(?:last_reading|gpm_window)\S*) \S+$", re.M
)
# Families that a healthy node with one instance of each thing does not have.
NEVER_HEALTHY = {
    "pymon_nvml_hangs_total",
    "pymon_gpu_xid_events_total",
    "pymon_gpu_xid_last_timestamp_seconds",
    "pymon_nvswitch_sxid_events_total",
    "pymon_nvswitch_sxid_last_timestamp_seconds",
}


def still(value):
    """The node with every counter at its start."""
    if isinstance(value, dict):
        return (
            value.get("start", 7) if "per_s" in value else {k: still(v) for k, v in value.items()}
        )
    return [still(item) for item in value] if isinstance(value, list) else value


def page(section, processes_max=4):
    outcome = Outcome("nvml", State.OK, 0.0, section)
    snapshot = Snapshot(0, 1_700_000_000_000_000_000, (outcome,))
    return (
        PrometheusRenderer(10_000, GpuSamples(processes_max)).render(snapshot, (), STATS).decode()
    )


def gpu_lines(text):
    return [
        line for line in text.splitlines() if re.match(r"(# \w+ )?pymon_(gpu|mig|nvml|gpus)_", line)
    ]


def labels_of(text):
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def whole(driver):
    """A whole GPU and one cut in two, with processes, read until GPM has told too."""
    state = still({**standard_node(), "gpus": [gpu(0), mig_gpu(1, 2)]})
    double = driver(state, process_utilization=True)
    return double.until(
        lambda s: (
            len(s.gpus) == 2
            and all(one.slow for one in s.gpus)
            and s.gpus[0].fast.activity
            and all(one.activity for one in s.gpus[1].fast.mig)
        )
    )


def test_the_page_of_the_standard_node(whole, request):
    text = VOLATILE.sub(r"\1 0", "\n".join(gpu_lines(page(whole))) + "\n")
    if request.config.getoption("--rewrite-golden"):
        GOLDEN.write_text(text)

    assert text == GOLDEN.read_text(), "run: pytest tests/daemon/nvml --rewrite-golden"


def test_every_family_of_the_catalogue_is_there(whole):
    given = {line.split()[2] for line in page(whole).splitlines() if line.startswith("# TYPE")}

    assert {m.name for m in (*NVML_METRICS, *GPU_METRICS)} - given == NEVER_HEALTHY


def test_promtool_finds_nothing_and_the_clients_parser_reads_every_line(whole):
    text = page(whole)
    read = sum(len(family.samples) for family in text_string_to_metric_families(text))
    assert read == sum(not line.startswith("#") for line in text.splitlines())
    if which("promtool") is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")

    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_other_readings_give_the_same_series(driver):
    """Also where everything falls to zero, but for what a zero cannot be."""
    double = driver({**standard_node(), "gpus": [gpu(0), gpu(1), mig_gpu(2, 2)]})
    read = lambda s: (  # noqa: E731
        len(s.gpus) == 3
        and all(g.slow for g in s.gpus)
        and all(g.fast.activity for g in s.gpus)
        and all(m.activity for m in s.gpus[2].fast.mig)
    )
    first = page(double.until(read))

    def change(state):
        for one in state["gpus"][:2]:
            one |= {"utilization": [0, 1], "event_reasons": 0x60, "temperatures": {"0": 41}}
        for one in state["gpus"]:
            one["clocks_mhz"]["1"] = 345
            one["fields"] |= {"186": 80_000, "185": 81_000, "144": 1, "230": 2}
            one["gpm"] |= {"2": 0.0, "5": 0.0, "10": 100.0}
            one["ecc"]["0/0/2"] = 6
            one["memory"] |= {"used": 0, "free": 9}
            one["processes"] = []
            for instance in one["mig"]["instances"]:
                instance["gpm"] = dict.fromkeys(instance["gpm"], 0.0)
                instance["memory"] |= {"used": 0}

    double.node.change(change)
    second = page(
        double.until(lambda s: read(s) and all(g.slow.recovery_action == 2 for g in s.gpus)), 0
    )

    assert first != second
    assert {
        key for key in labels_of(first) if not key[0].startswith("pymon_gpu_process_")
    } == labels_of(second)


def test_no_reading_is_in_a_label(whole):
    numbers = {"655.5", "655500", "63", "0.97", "97", "1965"}

    for _, labels in labels_of(page(whole)):
        assert not numbers & {value for _, value in labels}


@pytest.mark.parametrize(
    "text", ['a"b', "back\\slash", "two\nlines", "\u0007bell", "ÿþ garbage", "x" * 90]
)
def test_garbage_in_the_drivers_strings_breaks_no_line(driver, text):
    state = standard_node(1)
    state["gpus"][0] |= {"name": text, "serial": text, "pci_bus_id": text[:31]}
    state["driver_version"] = text[:79]
    shown = page(driver(state).until_read())

    families = {family.name: family for family in text_string_to_metric_families(shown)}
    (sample,) = families["pymon_gpu_info"].samples
    assert (
        sample.labels["name"] or "ÿ" in text
    )  # bytes that are no UTF-8: nvidia-ml-py gives nothing
    assert "pymon_gpu_power_watts" in families


OWN_CALLS = """
import json, sys, time, pynvml as p
p.nvmlInit()
h = p.nvmlDeviceGetHandleByIndex(int(sys.argv[1]))
m, u = p.nvmlDeviceGetMemoryInfo(h, p.nvmlMemory_v2), p.nvmlDeviceGetUtilizationRates(h)
IDS = [186, 185, 74, 271, 82, 230, 145, 45, 59, 197, 198, (138, 2**32 - 1), (139, 2**32 - 1)]
f = {v.fieldId: v.value.ullVal for v in p.nvmlDeviceGetFieldValues(h, IDS)}
samples = [p.nvmlGpmSampleAlloc() for _ in range(2)]
for sample in samples:
    p.nvmlGpmSampleGet(h, sample)
    time.sleep(0.02)
g = p.c_nvmlGpmMetricsGet_t()
g.version, g.numMetrics, g.sample1, g.sample2 = 1, 4, *samples
for place, number in enumerate([2, 3, 5, 10]):
    g.metrics[place].metricId = number
p.nvmlGpmMetricsGet(g)
fabric = p.c_nvmlGpuFabricInfo_v2_t()
p.nvmlDeviceGetGpuFabricInfoV(h, p.byref(fabric))
(process,) = p.nvmlDeviceGetComputeRunningProcesses(h)
least, most = p.nvmlDeviceGetPowerManagementLimitConstraints(h)
print(json.dumps({
    "pymon_gpu_utilization_ratio": u.gpu / 100,
    "pymon_gpu_memory_utilization_ratio": u.memory / 100,
    "pymon_gpu_memory_size_bytes": m.total,
    "pymon_gpu_memory_used_bytes": m.used,
    "pymon_gpu_memory_free_bytes": m.free,
    "pymon_gpu_memory_reserved_bytes": m.reserved,
    "pymon_gpu_power_watts/instant": f[186] / 1000,
    "pymon_gpu_power_watts/1s": p.nvmlDeviceGetPowerUsage(h) / 1000,
    "pymon_gpu_power_limit_watts/enforced": p.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
    "pymon_gpu_power_limit_watts/default": p.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000,
    "pymon_gpu_power_limit_watts/min": least / 1000,
    "pymon_gpu_power_limit_watts/max": most / 1000,
    "pymon_gpu_energy_joules_total": p.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,
    "pymon_gpu_clock_hertz/graphics": p.nvmlDeviceGetClockInfo(h, p.NVML_CLOCK_GRAPHICS) * 1e6,
    "pymon_gpu_clock_hertz/sm": p.nvmlDeviceGetClockInfo(h, p.NVML_CLOCK_SM) * 1e6,
    "pymon_gpu_clock_hertz/memory": p.nvmlDeviceGetClockInfo(h, p.NVML_CLOCK_MEM) * 1e6,
    "pymon_gpu_clock_hertz/video": p.nvmlDeviceGetClockInfo(h, p.NVML_CLOCK_VIDEO) * 1e6,
    "pymon_gpu_temperature_celsius/gpu": p.nvmlDeviceGetTemperature(h, p.NVML_TEMPERATURE_GPU),
    "pymon_gpu_pcie_replays_total": p.nvmlDeviceGetPcieReplayCounter(h),
    "pymon_gpu_remapped_rows_total/corrected": p.nvmlDeviceGetRemappedRows(h)[0],
    "pymon_gpu_remapped_rows_total/uncorrected": p.nvmlDeviceGetRemappedRows(h)[1],
    "pymon_gpu_row_remap_pending": p.nvmlDeviceGetRemappedRows(h)[2],
    "pymon_gpu_ecc_errors_total/corrected/volatile/dram": p.nvmlDeviceGetMemoryErrorCounter(h, 0, 0, 2),
    "pymon_gpu_ecc_errors_total/uncorrected/aggregate/sram": p.nvmlDeviceGetMemoryErrorCounter(h, 1, 1, 7),
    "pymon_gpu_clocks_event_active/sw_power_cap": int(bool(p.nvmlDeviceGetCurrentClocksEventReasons(h) & 4)),
    "pymon_gpu_clocks_event_seconds_total/sw_power_cap": f[74] / 1e9,
    "pymon_gpu_clocks_event_seconds_total/hw_power_brake": f[271] / 1e9,
    "pymon_gpu_temperature_celsius/memory": f[82],
    "pymon_gpu_recovery_action": f[230],
    "pymon_gpu_row_remap_failure": f[145],
    "pymon_gpu_nvlink_errors_total//crc_data": f[45],
    "pymon_gpu_nvlink_errors_total//recovery": f[59],
    "pymon_gpu_pcie_transmit_bytes_total": f[197],
    "pymon_gpu_pcie_receive_bytes_total": f[198],
    "pymon_gpu_nvlink_transmit_bytes_total/": f[138] * 1024,
    "pymon_gpu_nvlink_receive_bytes_total/": f[139] * 1024,
    "pymon_gpu_sm_active_ratio": g.metrics[0].value / 100,
    "pymon_gpu_sm_occupancy_ratio": g.metrics[1].value / 100,
    "pymon_gpu_tensor_active_ratio": g.metrics[2].value / 100,
    "pymon_gpu_dram_active_ratio": g.metrics[3].value / 100,
    "pymon_gpu_fabric_state": fabric.state,
    "pymon_gpu_fabric_status": fabric.status,
    f"pymon_gpu_process_memory_bytes/{process.pid}/": process.usedGpuMemory,
    f"pymon_gpu_process_sm_utilization_ratio/{process.pid}/":
        p.nvmlDeviceGetProcessUtilization(h, 0)[0].smUtil / 100,
    "pymon_gpu_processes": len(p.nvmlDeviceGetComputeRunningProcesses(h)),
}))
"""


def shown_of(section, index):
    """The page of one GPU: family and labels -> value."""
    shown = {}
    for family in text_string_to_metric_families(page(section)):
        for sample in family.samples:
            labels = dict(sample.labels)
            if labels.pop("gpu", None) == str(index):
                labels.pop("uuid")
                shown["/".join([sample.name, *labels.values()])] = sample.value
    return shown


def asked_of(double, code, *arguments):
    """What a process of its own prints that asks the double through nvidia-ml-py."""
    env = {**double.node.env, STATE: os.environ[STATE]}
    command = [sys.executable, "-c", code, *arguments]
    asked = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    return json.loads(asked.stdout or asked.stderr)


@pytest.mark.parametrize("index", [0, 1])
def test_nvidia_ml_py_says_the_same(driver, index):
    double = driver(still(standard_node()), process_utilization=True)
    section = double.until(lambda s: s.gpus and all(g.slow and g.fast.activity for g in s.gpus))
    shown, said = shown_of(section, index), asked_of(double, OWN_CALLS, str(index))
    assert {name: shown.get(name) for name in said} == pytest.approx(said)


OF_INSTANCES = """
import json, time, pynvml as p
p.nvmlInit()
parent = p.nvmlDeviceGetHandleByIndex(0)
said = {}
for place in range(2):
    h = p.nvmlDeviceGetMigDeviceHandleByIndex(parent, place)
    m, number = p.nvmlDeviceGetMemoryInfo(h, p.nvmlMemory_v2), p.nvmlDeviceGetGpuInstanceId(h)
    samples = [p.nvmlGpmSampleAlloc() for _ in range(2)]
    for sample in samples:
        p.nvmlGpmMigSampleGet(parent, number, sample)
        time.sleep(0.02)
    g = p.c_nvmlGpmMetricsGet_t()
    g.version, g.numMetrics, g.sample1, g.sample2 = 1, 2, *samples
    g.metrics[0].metricId, g.metrics[1].metricId = 2, 10
    p.nvmlGpmMetricsGet(g)
    info = p.nvmlDeviceGetComputeInstanceId(h), p.nvmlDeviceGetUUID(h), p.nvmlDeviceGetName(h).split("MIG ")[1]
    said |= {
        f"pymon_mig_memory_used_bytes/{number}": m.used,
        f"pymon_mig_memory_size_bytes/{number}": m.total,
        f"pymon_mig_memory_reserved_bytes/{number}": m.reserved,
        f"pymon_mig_sm_active_ratio/{number}": g.metrics[0].value / 100,
        f"pymon_mig_dram_active_ratio/{number}": g.metrics[1].value / 100,
        "/".join(["pymon_mig_info", str(number), *map(str, info)]): 1,
    }
print(json.dumps(said))
"""


def test_nvidia_ml_py_says_the_same_of_instances(driver):
    double = driver(still({**standard_node(), "gpus": [mig_gpu(0, 2)]}))
    read = lambda s: s.gpus and s.gpus[0].slow and all(m.activity for m in s.gpus[0].fast.mig)  # noqa: E731
    assert asked_of(double, OF_INSTANCES).items() <= shown_of(double.until(read), 0).items()

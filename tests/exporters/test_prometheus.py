import subprocess
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pymon.base.units import ratio
from pymon.exporters.prometheus import DaemonStats, PrometheusRenderer
from pymon.model import catalog
from pymon.model.distribution import Histogram
from pymon.model.finding import Finding, Incident, Subject
from pymon.model.gpu import FastReadings, GpuState
from pymon.model.host import HostSection, ShmSection
from pymon.model.snapshot import Outcome, Snapshot, State
from pymon.model.training import TrainingSection
from tests.detectors.histories import PROCESS
from tests.exporters.gpus import gpu, section

STATS = DaemonStats("0.1.0", 1.5, 20_000_000, 0, {"step_slow": 2}, {("torch", "written"): 1})
BUSY = replace(
    PROCESS,
    steps_total=12,
    phase_s_total=(1.0, 2.0, 3.0, 0.5, 0.25),
    step_histogram=Histogram(1.024e-6, (0,) * 14 + (12,) + (0,) * 17, 0.15),
    user_phase_s_total=(("loss", 0.5),),
)
GPUS = section(
    gpu(0, fast=FastReadings(utilization_ratio=0.5, power_w=300.0)),
    gpu(1),
    gpu(2, GpuState.LOST, fast=None),
)


def node(*processes, gpus=GPUS):
    return Snapshot(
        0,
        1_700_000_000_000_000_000,
        (
            Outcome("processes", State.OK, 0.001, TrainingSection(processes)),
            Outcome("host", State.OK, 0.001, HostSection(2, None, 1000, 400)),
            Outcome("shm", State.OK, 0.001, ShmSection(64, 4, 60)),
            Outcome("nvml", State.OK, 0.001, gpus)
            if gpus
            else Outcome("nvml", State.ABSENT, 0.001, None, "no driver"),
        ),
    )


def page(snapshot, incidents=(), **settings):
    return PrometheusRenderer(**settings).render(snapshot, incidents, STATS).decode()


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(text):
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_the_clients_own_parser_reads_what_was_measured():
    found = samples(page(node(BUSY)))
    who = (("job_id", "77"), ("pid", "100"), ("rank", "0"))

    assert found["pymon_steps_total", who] == 12
    assert found["pymon_phase_seconds_total", (who[0], ("phase", "backward"), *who[1:])] == 3.0
    assert found["pymon_step_seconds_count", who] == 12
    assert found["pymon_step_seconds_sum", who] == 0.15
    assert found["pymon_user_phase_seconds_total", (who[0], ("name", "loss"), *who[1:])] == 0.5


def test_buckets_only_grow_and_end_in_all():
    (family,) = [f for f in families(page(node(BUSY))).values() if f.name == "pymon_step_seconds"]
    buckets = [s for s in family.samples if s.name.endswith("_bucket")]

    assert [s.value for s in buckets] == sorted(s.value for s in buckets)
    assert buckets[-1].labels["le"] == "+Inf"
    assert [float(s.labels["le"]) for s in buckets] == sorted(
        float(s.labels["le"]) for s in buckets
    )


def test_what_is_absent_is_not_there():
    text = page(node(gpus=None))

    assert "pymon_gpu" not in text
    assert "pymon_host_cpu_busy_ratio" not in text
    assert "pymon_steps_total" not in text
    assert 'pymon_collector_up{collector="nvml",state="absent"} 1' in text
    assert "nan" not in text.lower().replace("nanosecond", "")


def test_one_gpu_without_readings_hides_no_other():
    text = page(node())

    assert 'pymon_gpu_power_watts{gpu="0",uuid="GPU-0",window="instant"} 300' in text
    assert 'pymon_gpu_power_watts{gpu="1"' not in text
    assert 'pymon_gpu_up{gpu="2",uuid="GPU-2"} 0' in text
    assert 'pymon_gpu_state{gpu="2",uuid="GPU-2",state="lost"} 1' in text


def test_an_open_incident_is_a_series():
    finding = Finding("step_slow", Subject("a" * 32, 100, 0, "77"), ratio(2), ratio(1), "slow")
    text = page(node(BUSY), (Incident("step_slow-1", finding, 0),))

    assert 'pymon_incident{detector="step_slow",rank="0",job_id="77",pid="100"} 1' in text


@pytest.mark.parametrize(
    ("job_id", "shown"),
    [('a"b\\c', 'a\\"b\\\\c'), ("two\nlines", "two?lines"), ("x" * 500, "x" * 128)],
)
def test_label_values_from_an_environment_break_no_line(job_id, shown):
    text = page(node(replace(BUSY, job_id=job_id)))

    assert f'job_id="{shown}"' in text
    assert families(text)


def test_beyond_the_cap_series_are_dropped_from_the_end_and_counted():
    many = [replace(BUSY, pid=pid, attach_id=f"{pid:032x}") for pid in range(100)]
    renderer = PrometheusRenderer(series_max=300)
    renderer.render(node(*many), (), STATS)
    text = renderer.render(node(*many), (), STATS).decode()

    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == 300
    assert "pymon_steps_total" in text
    assert "pymon_step_seconds_bucket" not in text
    assert samples(text)["pymon_series_dropped_total", ()] > 1000


@pytest.mark.parametrize(("gpus", "series"), [(0, 1000), (1, 1250), (8, 3000)])
def test_the_cap_grows_with_the_gpus_unless_it_is_given(gpus, series):
    many = [replace(BUSY, pid=pid, attach_id=f"{pid:032x}") for pid in range(200)]
    told = node(*many, gpus=section(*map(gpu, range(gpus))) if gpus else None)

    def served(text):
        return sum(1 for line in text.splitlines() if not line.startswith("#"))

    assert served(page(told)) == series
    assert served(page(told, series_max=500)) == 500


def test_of_processes_with_the_same_labels_the_living_one_is_told():
    """After an exec, or where containers start anew and give the same pids."""
    first = replace(BUSY, ended="replaced by exec", steps_total=300)
    second = replace(first, attach_id="b" * 32, steps_total=200, attached_real_ns=2)
    third = replace(BUSY, attach_id="c" * 32, steps_total=5, attached_real_ns=3)
    for processes, steps, up in (((first, second, third), 5, 1), ((first, second), 200, 0)):
        told = families(page(node(*processes)))
        assert [s.value for s in told["pymon_steps"].samples] == [steps]
        assert [s.value for s in told["pymon_process_up"].samples] == [up]


def test_a_page_after_others_is_the_page_that_a_new_renderer_makes():
    """What is kept from page to page shows nothing that is over, and misses nothing that is new."""
    other = replace(BUSY, pid=101, attach_id="b" * 32)
    hot = section(gpu(0, fast=FastReadings(utilization_ratio=0.75)), gpu(1, GpuState.HUNG, None))
    finding = Finding("step_slow", Subject("a" * 32, 100, 0, "77"), ratio(2), ratio(1), "slow")
    told = [
        (node(BUSY), ()),
        (node(replace(BUSY, steps_total=13), other), (Incident("step_slow-1", finding, 0),)),
        (node(other, gpus=hot), ()),
        (node(gpus=None), ()),
        (node(BUSY), ()),
    ]
    renderer = PrometheusRenderer()
    for snapshot, incidents in told:
        assert renderer.render(snapshot, incidents, STATS).decode() == page(snapshot, incidents)


def test_every_family_stands_in_the_catalogue():
    text = page(node(BUSY))

    heads = [line.split() for line in text.splitlines() if line.startswith("# TYPE")]
    assert heads
    for _, _, name, kind in heads:
        assert catalog.BY_NAME[name].kind == kind


def test_promtool_finds_nothing():
    if which("promtool") is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page(node(BUSY)), text=True, capture_output=True
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_page_of_metrics_is_current():
    docs = Path(__file__).parents[2] / "docs" / "metrics.md"

    assert docs.read_text() == catalog.markdown(), (
        "run: python -m pymon.model.catalog > docs/metrics.md"
    )

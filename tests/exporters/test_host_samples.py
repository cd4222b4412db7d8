from dataclasses import fields, replace

import pytest

from pymon.exporters.host_samples import about_host
from pymon.model.catalog_host import HOST_METRICS, NODE_METRICS
from pymon.model.snapshot import Section
from tests.exporters.hosts import SECTIONS, snapshot
from tests.exporters.test_prometheus import page, samples

NAMES = {metric.name for metric in (*NODE_METRICS, *HOST_METRICS)}
OF_HOST = {name: section for name, section in SECTIONS.items() if name not in ("jobs", "pods")}


def told(**sections):
    parts = about_host(snapshot(**sections))
    return {(name, *labels): value for _, _, part in parts for name, labels, value in part}


def test_where_everything_is_there_every_family_is_and_no_other():
    assert {key[0] for key in told()} == NAMES


@pytest.mark.parametrize(
    ("series", "value"),
    [
        (("pymon_host_cpu_seconds_total", "user"), 1.5),
        (("pymon_host_memory_cached_bytes",), 300),
        (("pymon_host_swap_in_bytes_total",), 5),
        (("pymon_host_pressure_stalled_seconds_total", "io"), 1.0),
        (("pymon_host_processes_stuck",), 1),
        (("pymon_process_shm_used_bytes", "0", "77", "100"), 4),
        (("pymon_cgroup_cpu_throttled_seconds_total", "job_77"), 6.1),
        (("pymon_cgroup_pressure_waiting_seconds_total", "job_77", "io"), 2.5),
        (("pymon_process_usable_cpus", "0", "77", "100"), 2.0),
        (("pymon_process_gpu_numa_distance", "farthest", "0", "GPU-0", "0", "77", "100"), 21),
        (("pymon_loader_workers", "sleeping", "0", "77", "100"), 2),
        (("pymon_process_open_fds", "0", "77", "100"), 30),
        (("pymon_disk_write_seconds_total", "sda"), 6.0),
        (("pymon_network_drops_total", "eth0", "transmit"), 6),
        (("pymon_infiniband_errors_total", "mlx5_0", "1", "symbol"), 0),
        (("pymon_pci_link_width", "0000:3b:00.0", "gpu"), 8),
        (("pymon_nfs_request_seconds_total", "fs:/data", "read"), 2.5),
        (("pymon_lustre_operation_seconds_total", "fs", "llite", "read"), 2.5),
        (("pymon_readings_absent", "shm", "shm", "no_permission"), 2),
    ],
)
def test_what_a_series_holds(series, value):
    assert told()[series] == value


# A label, which is then empty; and what the control group's family tells.
NO_FAMILY = ("ProcessShm.rank", "TrainerUse.rank", "Placement.rank", "Placement.quota_cpus")


def absent_rows(section):
    """Sections in which one optional field of the section, or of its first row, is absent."""
    for field in fields(section):
        value = getattr(section, field.name)
        named = f"{type(section).__name__}.{field.name}"
        if "None" in str(field.type) and named not in NO_FAMILY:
            yield replace(section, **{field.name: None})
        if isinstance(value, tuple) and value and hasattr(value[0], "__dataclass_fields__"):
            for row in absent_rows(value[0]):
                yield replace(section, **{field.name: (row,)})


@pytest.mark.parametrize("name", OF_HOST)
def test_what_is_absent_is_not_there_and_costs_no_other_family(name):
    whole = told()
    for section in absent_rows(SECTIONS[name]):
        left = told(**{name: section})
        assert 1 <= len(whole) - len(left) <= 2
        assert left.items() <= whole.items()
        assert None not in left.values()


@pytest.mark.parametrize("name", OF_HOST)
def test_a_collector_that_gives_nothing_takes_only_its_own(name):
    class Nothing(Section):
        pass

    left = {key[0] for key in told(**{name: Nothing()})}
    assert left < NAMES
    assert len(left) > len(NAMES) / 2


def test_hostile_names_make_no_line_and_no_duplicate():
    group = SECTIONS["cgroup"].groups[0]
    names = ['a"b\\', "two\nlines", "two?lines", "\x1b[31m", "x" * 500]
    cgroup = replace(SECTIONS["cgroup"], groups=tuple(replace(group, name=name) for name in names))
    text = page(snapshot(cgroup=cgroup))

    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    shown = {
        dict(labels)["cgroup"]
        for name, labels in samples(text)
        if name == "pymon_cgroup_cpu_quota_cpus"
    }
    assert shown == {'a"b\\', "two?lines", "?[31m", "x" * 128}

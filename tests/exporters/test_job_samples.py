from dataclasses import replace

from pymon.exporters.job_samples import about_jobs
from pymon.model.catalog_jobs import JOB_METRICS
from pymon.model.jobs import JobIdentity
from tests.exporters.hosts import JOB, SECTIONS, snapshot
from tests.exporters.test_prometheus import families, page


def told(**sections):
    parts = about_jobs(snapshot(**sections))
    return {(name, *labels): value for _, _, part in parts for name, labels, value in part}


def test_a_process_once_for_each_gpu_that_it_holds():
    info = [key for key in told() if key[0] == "pymon_job_info"]
    who = ("0", "77", "100", "ann", "slurm", "0", "p", "c", "u", "job_77")

    assert info == [
        ("pymon_job_info", "0", "GPU-0", "", *who),
        ("pymon_job_info", "1", "GPU-1", "3", *who),
    ]
    assert {key[0] for key in told()} == {metric.name for metric in JOB_METRICS}


def test_holders_and_times():
    found = told()

    assert found["pymon_gpu_holders", "1", "GPU-1", "gone"] == 1
    assert found["pymon_job_gpu_allocated_seconds_total", "ann", "77"] == 20.0
    assert found["pymon_job_gpu_idle_seconds_total", "ann", "77"] == 10.0


def test_what_is_not_known_is_empty():
    nobody = replace(JOB, rank=None, job_id="", gpus=(), identity=JobIdentity())
    jobs = replace(SECTIONS["jobs"], processes=(nobody,), holdings=(), gpu_times=())
    found = told(jobs=jobs, pods=None)

    assert list(found) == [("pymon_job_info", "", "", "", "", "", "100", "ann", *[""] * 6)]


def test_with_the_gpus_families_off_the_jobs_stay():
    off = frozenset(name for name in families(page(snapshot())) if name.startswith("pymon_gpu_"))
    text = page(snapshot(), disabled=off)

    assert off
    assert "pymon_gpu_" not in text
    assert 'pymon_job_info{gpu="0",uuid="GPU-0"' in text

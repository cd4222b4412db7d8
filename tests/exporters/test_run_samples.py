"""What a run does beside its steps, as metrics; and nothing where it is not known."""

from dataclasses import replace

import pytest

from pymon.exporters.run_samples import about_goodput, about_run, peak_of
from pymon.model.catalog_run import RUN_METRICS
from pymon.model.distribution import Histogram
from pymon.model.jobs import JobIdentity, JobProcess, JobsSection
from pymon.model.loader import Loader
from pymon.model.progress import GoodputSection, Progress, RunState, WallTime
from pymon.model.snapshot import Outcome, Snapshot, State
from pymon.model.training import StepRecord, TrainingSection
from tests.detectors.histories import PROCESS
from tests.exporters.gpus import gpu, section
from tests.exporters.test_prometheus import page

LABELS = ("0", "77", "100")
WAITS = Histogram(1e-6, (0, 10, 0), 0.8)
LOADER = Loader(
    workers=2,
    prefetch_factor=4,
    pins_memory=True,
    persistent_workers=False,
    sharing_strategy="file_descriptor",
    start_method="fork",
    batch_size=8,
    started_total=3,
    first_batches_total=2,
    first_batch_s_total=0.6,
    last_first_batch_s=0.3,
    queue_looks_total=10,
    queue_depth_total=5,
    queue_empty_total=7,
    batch_looks_total=10,
    batch_bytes_total=10_000,
    last_batch_bytes=1_000,
    wait_histogram=WAITS,
)
PROGRESS = Progress(
    state=RunState.EVALUATING,
    state_age_s=1.0,
    process_age_s=100.0,
    startup_s=10.0,
    first_step_s=1.0,
    evaluations_total=1,
    evaluation_batches_total=4,
    saves_total=3,
    saves_failed_total=1,
    background_save_s_total=0.5,
    last_save_real_ns=1_700_000_000_000_000_000,
    last_save_s=2.0,
    flops_per_sample=None,
    flops_per_token=10**12,
    restarts=None,
    loader=LOADER,
)


def step(number, **more):
    return StepRecord(number, 0, 0.1, (0.08, 0.02, 0.0, 0.0, 0.0), 1, 1, 1, False, False, **more)


TRAINER = replace(
    PROCESS,
    progress=PROGRESS,
    samples_total=80,
    tokens_total=8000,
    new_steps=(step(1, samples=8, tokens=800), step(2, samples=8, tokens=400)),
    step_histogram=Histogram(1e-6, (0, 10), 1.0),
    phase_s_total=(0.8, 0.2, 0.0, 0.0, 0.0),
    evaluation_s_total=20.0,
    checkpoint_s_total=5.0,
    stall_s_total=3.0,
)
HOLDER = JobProcess(
    1, PROCESS.attach_id, 100, "77", 0, "ann", 0, "77", JobIdentity(), ((0, "GPU-0", None),), 5
)


def node(process=TRAINER, holder=HOLDER, ranks=()):
    sections = {
        "processes": TrainingSection((process,)),
        "jobs": JobsSection((holder,), (), (), True),
        "nvml": section(gpu(0)),
        "goodput": GoodputSection(ranks),
    }
    outcomes = (Outcome(name, State.OK, 0.0, one) for name, one in sections.items())
    return Snapshot(0, 0, tuple(outcomes))


def told(process=TRAINER, **more):
    samples = about_run(process, LABELS, peak_of(process, node(process, **more)))
    return {(name, *values[: -len(LABELS)]): value for name, values, value in samples}


def test_rates_are_those_of_the_steps_of_this_tick():
    found = told()
    assert found["pymon_samples_per_second",] == pytest.approx(80)
    assert found["pymon_tokens_per_second",] == pytest.approx(6000)
    assert found["pymon_samples_total",] == 80


def test_utilisation_is_against_the_peak_of_the_gpus_that_the_process_holds():
    assert told()["pymon_model_flops_utilisation_ratio",] == pytest.approx(6e15 / 989.5e12)


@pytest.mark.parametrize(
    "holder",
    [
        replace(HOLDER, gpus=()),
        replace(HOLDER, gpus=((0, "GPU-0", 3),)),  # a slice of one
        replace(HOLDER, gpus=((0, "GPU-0", None), (1, "GPU-unknown", None))),
        replace(HOLDER, attach_id="another"),
    ],
)
def test_without_a_known_peak_there_is_no_utilisation(holder):
    assert ("pymon_model_flops_utilisation_ratio",) not in told(holder=holder)


def test_where_one_step_does_not_tell_there_is_no_rate():
    found = told(replace(TRAINER, new_steps=(step(1, samples=8), step(2))))
    assert ("pymon_samples_per_second",) not in found
    assert ("pymon_tokens_per_second",) not in found


def test_what_is_not_known_is_absent_and_never_zero():
    nothing = replace(
        PROGRESS,
        last_save_real_ns=None,
        loader=replace(LOADER, started_total=0, workers=None, queue_looks_total=0),
    )
    found = told(replace(TRAINER, progress=nothing, samples_total=None, new_steps=()))
    assert not any("loader" in name or "samples" in name for name, *_ in found)
    assert ("pymon_last_checkpoint_timestamp_seconds",) not in found
    assert list(about_run(PROCESS, LABELS, None)) == []


def test_the_state_is_one_of_all():
    states = {key[1]: value for key, value in told().items() if key[0] == "pymon_process_state"}
    assert states == {"starting": 0, "training": 0, "evaluating": 1, "checkpointing": 0}
    assert not any(
        key[0] == "pymon_process_state" for key in told(replace(TRAINER, ended="exited"))
    )


def test_the_loader_and_how_many_workers_would_do():
    found = told()
    settings = ("2", "4", "true", "false", "file_descriptor", "fork", "8")
    (info,) = (v for n, v, _ in about_run(TRAINER, LABELS, None) if n == "pymon_loader_info")
    assert info == (*LABELS, *settings)
    assert found["pymon_loader_queue_depth",] == 0.5
    assert found["pymon_loader_queue_empty_ratio",] == 0.7
    assert found["pymon_loader_batch_bytes",] == 1000
    # Two make one in 100 ms, which is used in 20 ms: ten would do.
    assert found["pymon_loader_workers_sufficient",] == 10


def ranks_told(*ranks):
    return [sample for *_, part in about_goodput(node(ranks=ranks)) for sample in part]


def test_wall_time_of_a_rank():
    rank = WallTime(0, "77", 100, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), 2)
    found = {(name, *values): value for name, values, value in ranks_told(rank)}
    assert found[("pymon_wall_seconds_total", "training", *LABELS)] == 2.0
    assert found[("pymon_wall_seconds_total", "restart", *LABELS)] == 6.0
    assert found[("pymon_restarts_total", *LABELS)] == 2
    unnamed = replace(rank, restarts_total=None)
    assert not any(n == "pymon_restarts_total" for n, *_ in ranks_told(unnamed))


def test_every_family_is_on_the_page():
    rank = WallTime(0, "77", 100, (1.0,) * 7, 2)
    text = page(node(ranks=(rank,)))
    assert [one.name for one in RUN_METRICS if f"# TYPE {one.name} " not in text] == []

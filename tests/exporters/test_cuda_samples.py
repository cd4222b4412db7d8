"""What the GPU layers of a trainer measured, as metrics; and nothing where there is nothing."""

from dataclasses import replace

import pytest

from pymon.collectors.gpu_work import MAX_COUNT, cuda_events, cupti_sums
from pymon.exporters.cuda_samples import about_cuda
from pymon.link import layout
from pymon.link.gpu_sections import cupti_sample, gpu_sample, gpu_steps
from pymon.model.catalog import BY_NAME
from tests.detectors.histories import PROCESS

LABELS = ("0", "job", "7")


def gpu_body(**words):
    raw = bytearray(layout.GPU_BODY_BYTES)
    values = [0] * 15
    for name, value in words.items():
        values[
            {
                "state": 0,
                "timed": 2,
                "untimed": 3,
                "step_ns": 4,
                "dropped": 8,
                "failed": 11,
                "cpu_ns": 13,
            }[name]
        ] = value
    layout.GPU_SCALARS.pack_into(raw, 0, *values)
    return bytes(raw)


def cupti_body(state=1, records=5, gemm=(4, 8_000, 3_000, 0), busy_ns=9_000):
    raw = bytearray(layout.CUPTI_BODY_BYTES)
    words = [0] * 38
    words[0], words[4], words[22] = state, records, busy_ns
    layout.CUPTI_SCALARS.pack_into(raw, 0, *words)
    layout.WORK_SUMS.pack_into(raw, layout.CUPTI_HEAD_BYTES, *gemm, *[0] * layout.WORK_BUCKETS)
    return bytes(raw)


def samples(**sections):
    process = replace(PROCESS, **sections)
    return {
        (name, values[: -len(LABELS)]): value for name, values, value in about_cuda(process, LABELS)
    }


def test_every_sample_is_of_the_catalogue_with_its_labels():
    process = replace(
        PROCESS,
        cuda_events=cuda_events(gpu_sample(gpu_body(state=1, timed=2, step_ns=10**9))),
        cupti=cupti_sums(cupti_sample(cupti_body(gemm=(1, 1, 1, 64)))),
    )
    found = list(about_cuda(process, LABELS))
    assert len(found) > 20
    for name, values, _ in found:
        assert len(values) == len(BY_NAME[name].labels), name
    listed = {name for name in BY_NAME if name.startswith("pymon_cuda_")}
    assert {name for name, _, _ in found} == listed


def test_gpu_seconds_by_step_phase_and_class():
    found = samples(
        cuda_events=cuda_events(
            gpu_sample(gpu_body(state=1, timed=2, step_ns=3 * 10**9, dropped=1))
        ),
        cupti=cupti_sums(cupti_sample(cupti_body())),
    )
    assert found["pymon_cuda_step_seconds_total", ()] == 3.0
    assert found["pymon_cuda_layer_lost_total", ("events",)] == 1
    assert found["pymon_cuda_busy_seconds_total", ()] == 9e-6
    assert found["pymon_cuda_work_seconds_total", ("gemm",)] == 8e-6
    assert found["pymon_cuda_work_total", ("gemm",)] == 4
    assert ("pymon_cuda_work_total", ("attention",)) not in found


@pytest.mark.parametrize("state", [2, 3, 4])
def test_a_layer_that_does_not_run_says_so_and_claims_nothing(state):
    found = samples(
        cuda_events=cuda_events(gpu_sample(gpu_body(state=state))),
        cupti=cupti_sums(cupti_sample(cupti_body(state=state, records=0, gemm=(0, 0, 0, 0)))),
    )
    assert found == {
        ("pymon_cuda_layer_running", ("events",)): False,
        ("pymon_cuda_layer_running", ("cupti",)): False,
    }


def test_a_process_without_cuda_or_with_an_older_probe_has_no_series():
    assert samples() == {}
    assert samples(cuda_events=cuda_events(gpu_sample(gpu_body())), cupti=cupti_sums(None)) == {}


def test_what_a_trainer_claims_is_bounded_and_never_raises():
    huge = 2**64 - 1
    cupti = cupti_sums(cupti_sample(b"\xff" * layout.CUPTI_BODY_BYTES))
    events = cuda_events(gpu_sample(b"\xff" * layout.GPU_BODY_BYTES), gpu_steps(b"\xff" * 64))
    assert cupti.records_total == MAX_COUNT
    assert events.steps_timed_total == MAX_COUNT
    assert events.new_steps[0].gpu_s == huge / 1e9
    assert list(about_cuda(replace(PROCESS, cuda_events=events, cupti=cupti), LABELS)) == []

"""NCCL's own recorder, on a GPU only: its double would tell of the double."""

import pytest

from tests.gpu.nccl import COUNT, FLOATS


@pytest.mark.gpu
@pytest.mark.timeout(240)
def test_the_collectives_of_nccl_are_counted_and_no_capture_of_a_graph_is_disturbed(scenario, note):
    if not scenario.on_gpu:
        pytest.skip("there is no double of NCCL")
    said = scenario("nccl", PYMON_FLIGHT_RECORDER="nccl").said
    assert said["reason"] == ""
    assert ["all_reduce", COUNT, COUNT * FLOATS * 4] in said["ops"]
    assert said["groups"][0] == ["nccl", COUNT, COUNT]
    assert said["captured"] == COUNT
    note(nccl_recorder_read_ms=said["read_cpu_ms"], nccl_recorder_reads=said["reads"])


@pytest.mark.gpu
@pytest.mark.timeout(240)
def test_without_being_asked_it_is_not_read_and_the_page_says_so(scenario):
    if not scenario.on_gpu:
        pytest.skip("there is no double of NCCL")
    said = scenario("nccl").said
    assert "PYMON_FLIGHT_RECORDER=nccl" in said["reason"]
    assert said["ops"] == []

"""The GPU layers on a GPU, and the same scenarios on its double (where no time means anything)."""

import pytest

from tests.gpu.conftest import second_client

pytestmark = pytest.mark.timeout(240)
FORWARD, BACKWARD, OPTIMIZER = 1, 2, 3  # slots of phase_ns_total


def test_a_trainers_gpu_time_by_phase_and_class(scenario, note):
    said = scenario("train").said
    shares = [ns / max(1, said["whole_ns"]) for ns in said["phase_ns"]]
    note(
        train_gpu_step_us=said["step_ns"] / 1e3,
        train_wall_step_us=said["wall_ns"] / 1e3,
        train_forward_ratio=shares[FORWARD],
        train_backward_ratio=shares[BACKWARD],
        train_optimizer_ratio=shares[OPTIMIZER],
        train_classes=", ".join(sorted(said["work"])),
        train_busy_ratio=said["busy_ns"] / (60 * said["wall_ns"]),
        train_other_ratio=said["work"].get("other", (0, 0))[1]
        / sum(ns for _, ns in said["work"].values()),
    )
    assert said["layers"] == {"events": ["running", "running"], "cupti": ["running", "running"]}
    assert said["steps"] * said["stride"] >= 56  # of 60: the last may not have been asked for yet
    assert said["failed"] == said["dropped"] == said["records_dropped"] == said["bad_times"] == 0
    assert min(said["phase_ns"][slot] for slot in (BACKWARD, OPTIMIZER)) > 0
    assert sum(said["phase_ns"]) == said["whole_ns"]
    assert said["work"]["gemm"][0] > 0
    if scenario.on_gpu:
        assert said["zero_times"] == 0
        assert said["phase_ns"][FORWARD] > 0
        assert said["step_ns"] == pytest.approx(
            said["wall_ns"], rel=0.1
        )  # the loss is read each step
        assert said["busy_ns"] <= 1.02 * 60 * said["wall_ns"]


@pytest.mark.slow
def test_agrees_with_torch_profiler_within_one_per_cent(scenario, note):
    said = scenario("agree").said
    note(
        agree_total_ratio=said["total_ratio"],
        agree_worst_class=said["worst_class"],
        agree_worst_ratio=said["worst_ratio"],
        agree_count_ours=said["counts"][0],
        agree_count_theirs=said["counts"][1],
        agree_noise_theirs_ratio=said["theirs_spread"],
        agree_noise_ours_ratio=said["ours_spread"],
    )
    ours, theirs = said["ours"], said["theirs"]
    counts = {name: (ours.get(name, [0])[0], theirs.get(name, [0])[0]) for name in {*ours, *theirs}}
    apart = {
        name: pair for name, pair in counts.items() if abs(pair[0] - pair[1]) > 0.01 * max(pair)
    }
    assert apart == {}
    if scenario.on_gpu:
        assert abs(said["total_ratio"]) <= 0.01
        assert said["worst_ratio"] <= 0.01
    else:
        assert ours == theirs


@pytest.mark.slow
def test_ten_hand_overs_lose_no_kernel(scenario, note):
    said = scenario("handover").said
    alone = scenario("profile_alone").said
    sessions = 10 if scenario.on_gpu else 4
    note(
        handover_ours=said["ours"][0],
        handover_ours_lost=sessions * max(said["ours"]) - sum(said["ours"]),
        handover_theirs=alone["theirs"][0],
        handover_theirs_lost=sessions * max(alone["theirs"]) - sum(said["theirs"]),
        handover_theirs_lost_without_pymon=sessions * max(alone["theirs"]) - sum(alone["theirs"]),
        handover_profiler_opens_ms=said["open_ms"],
        handover_zero_times=said["zero_times"],
        handover_bad_times=said["bad_times"],
    )
    assert said["state"] == "running"
    assert said["handovers"] == len(said["theirs"]) == sessions
    assert said["stolen"] == said["lost_buffers"] == said["dropped"] == said["bad_times"] == 0
    assert len(set(said["ours"])) == 1
    assert sum(said["theirs"]) >= sum(alone["theirs"])  # what it loses by itself, it loses


def test_no_graph_capture_fails(scenario, note):
    said = scenario("capture").said
    note(
        captures=said["captures"],
        captures_wrong=said["wrong"],
        captures_marks_left_out=said["skipped"],
    )
    assert said["wrong"] == said["failed"] == 0
    assert said["skipped"] > 0
    assert said["layers"]["events"] == ["running", "running"]
    assert said["layers"]["cupti"] == ["running", "running"]


def test_forked_loader_workers(scenario):
    ended = scenario("workers")
    assert ended.said["batches"] == 24
    assert ended.said["records"] > 0
    assert ended.said["layers"]["cupti"] == ["running", "running"]
    assert ended.said["children"] == []
    assert ended.code == 0


@pytest.mark.parametrize("name", ["leave_working", "leave_profiling", "leave_by_exception"])
def test_the_process_ends(scenario, name):
    ended = scenario(name)
    planned = name == "leave_by_exception"
    assert ended.code == int(planned)
    assert ("RuntimeError: planned" in ended.errors) == planned


@pytest.mark.slow
def test_what_the_driver_does_with_a_second_client(scenario, note):
    """Not known beforehand, so it is noted: it is refused, or it has CUPTI until ours sees that it lost it."""
    said = scenario("second_client", PYMON_SECOND_CLIENT=str(second_client())).said
    note(**{f"second_client_{name}": value for name, value in said.items()})
    assert (said["state"], said["stolen"]) in {("running", 0), ("yielded", 1)}
    if scenario.on_gpu:
        assert said["our_records_since"] > 0 or said["state"] == "yielded"
    else:
        assert said["answer"] == 0  # the double lets the last one win
        assert said["their_buffers"] > 0
        assert said["our_records_since"] == 0

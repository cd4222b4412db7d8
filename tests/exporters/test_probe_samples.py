"""What the probe saw beside steps, as metrics; and nothing where there is nothing."""

from dataclasses import replace

from pymon.collectors.collectives import collectives
from pymon.collectors.recorded import recorded
from pymon.collectors.training_events import training_events
from pymon.exporters.probe_samples import about_probe
from pymon.link import layout
from pymon.link.collectives_section import collectives_sample
from pymon.link.event_section import KINDS, event_samples, events_sample
from pymon.link.recorder_section import recorder_sample
from pymon.model.catalog import BY_NAME
from pymon.model.memory import AllocatorUse, HostUse, ProcessMemory
from pymon.model.recorded import DdpWait, GroupWait, Waits
from tests.detectors.histories import PROCESS

LABELS = ("0", "job", "7")


def events_body(benchmark=0, **sums):
    raw = bytearray(layout.EVENTS_BODY_BYTES)
    layout.EVENTS_SCALARS.pack_into(raw, 0, 0b11, 1, benchmark, 0)
    for kind, words in sums.items():
        at = layout.EVENT_SUMS_BYTE + KINDS.index(kind) * layout.EVENT_SUMS.size
        layout.EVENT_SUMS.pack_into(raw, at, *words)
    return bytes(raw)


def samples(**sections):
    found = list(about_probe(replace(PROCESS, **sections), LABELS))
    for name, values, _ in found:
        assert len(values) == len(BY_NAME[name].labels)
    return {(name, values[: -len(LABELS)]): value for name, values, value in found}


def of_events(**body):
    return samples(events=training_events(events_sample(events_body(**body))))


def test_an_older_probe_tells_nothing():
    assert samples(events=None) == {}


def test_kinds_that_did_not_occur_and_settings_that_are_not_known_are_absent():
    assert of_events() == {}


def test_an_event_is_counted_timed_and_told_with_its_step():
    assert of_events(gc_full=(3, 2 * 10**9, 10**9, 5, 10**8, 77)) == {
        ("pymon_training_events_total", ("gc_full",)): 3,
        ("pymon_training_event_seconds_total", ("gc_full",)): 2.0,
        ("pymon_training_event_last_step", ("gc_full",)): 77,
    }


def test_a_graph_break_has_no_time():
    found = of_events(graph_break=(2, 0, 0, 0, 0, 1))
    assert ("pymon_training_events_total", ("graph_break",)) in found
    assert ("pymon_training_event_seconds_total", ("graph_break",)) not in found


def test_the_benchmark_setting_is_off_or_on():
    assert of_events(benchmark=1) == {("pymon_cudnn_benchmark", ()): False}
    assert of_events(benchmark=2) == {("pymon_cudnn_benchmark", ()): True}


def test_single_events_carry_their_seconds():
    raw = layout.EVENT_ENTRY.pack(9, KINDS.index("compile"), 100, 5 * 10**8, 3, 0)
    events = training_events(events_sample(events_body()), event_samples(raw))
    (event,) = events.new
    assert (event.kind, event.begin_mono_ns, event.duration_s, event.step) == (
        "compile",
        100,
        0.5,
        3,
    )


def of_collectives(*scalars, groups=()):
    raw = bytearray(layout.COLLECTIVES_BODY_BYTES)
    layout.COLLECTIVES_SCALARS.pack_into(raw, 0, len(groups), *scalars)
    for slot, group in enumerate(groups):
        at = layout.COLLECTIVES_SCALARS.size + slot * layout.GROUP_STATE.size
        layout.GROUP_STATE.pack_into(raw, at, *group)
    return collectives(collectives_sample(bytes(raw)), 5 * 10**9)


def test_a_process_without_groups_has_no_collectives():
    assert samples(collectives=of_collectives(*[0] * 7)) == {}


def test_communication_of_ddp_and_the_number_of_each_group():
    groups = [(b"0", 4, 2, 77, 10**9), (b"tensor\n", 2, 0, 5, 0)]
    found = of_collectives(3, 6 * 10**9, 10**9, 300, 1, 2, 64, groups=groups)
    assert samples(collectives=found) == {
        ("pymon_ddp_iterations_sampled_total", ()): 3,
        ("pymon_ddp_communication_seconds_total", ()): 6.0,
        ("pymon_ddp_overlap_seconds_total", ()): 1.0,
        ("pymon_collective_sequence", ("0",)): 77,
        ("pymon_collective_sequence", ("tensor\N{REPLACEMENT CHARACTER}",)): 5,
    }
    assert [group.idle_s for group in found.groups] == [4.0, 5.0]


USED = ProcessMemory(
    (
        AllocatorUse(
            device=1, uuid="GPU-1", step=5, age_s=0.1, allocated_bytes=3, alloc_retries_total=0
        ),
    ),
    HostUse(rss_bytes=9, descriptors=4, uss_bytes=7, workers=0, workers_uss_bytes=0),
)


def test_memory_that_is_told_is_exported_and_no_other():
    assert samples(memory=USED) == {
        ("pymon_allocator_allocated_bytes", ("1", "GPU-1")): 3,
        ("pymon_allocator_retries_total", ("1", "GPU-1")): 0,
        ("pymon_process_unique_memory_bytes", ()): 7,
        ("pymon_loader_workers_unique_memory_bytes", ()): 0,
    }
    assert samples(memory=ProcessMemory((), HostUse())) == {}


def test_what_a_process_held_is_not_held_any_more_when_it_has_ended():
    assert samples(memory=USED, ended="killed by SIGKILL") == {}


def recorder_body(*, groups=(), ops=(), reads=1, missed=0, dropped=0, reason=b""):
    raw = bytearray(layout.RECORDER_BODY_BYTES)
    counts = (reads, 2 * 10**9, 0, 0, missed, dropped, 0, len(groups), len(ops), 0)
    layout.RECORDER_SCALARS.pack_into(raw, 0, *counts)
    raw[layout.RECORDER_REASON_BYTE : layout.RECORDER_REASON_BYTE + len(reason)] = reason
    for entries, at, struct in (
        (groups, layout.RECORDER_GROUPS_BYTE, layout.RECORDED_GROUP),
        (ops, layout.RECORDER_OPS_BYTE, layout.RECORDED_OP),
    ):
        for slot, entry in enumerate(entries):
            struct.pack_into(raw, at + slot * struct.size, *entry)
    return recorder_sample(bytes(raw))


NOW_REAL_NS = 9 * 10**9
GROUP = (b"0", b"gloo", 8, 0, 6, 1, 400, 2 * 10**9)  # in its seventh collective for seven seconds
OP = (b"all_reduce", 0, 5, 2000, 0, 0)


def of_recorder(sequence=8, **body):
    known = of_collectives(*[0] * 7, groups=[(b"0", 2, 0, sequence, 10**9)])
    return samples(recorded=recorded(recorder_body(**body), known, NOW_REAL_NS))


def test_a_recorder_that_was_not_read_tells_nothing():
    assert of_recorder(reads=0) == {}


def test_collectives_by_group_and_operation_and_what_was_not_read():
    assert of_recorder(groups=[(*GROUP[:5], 0, 0, 0)], ops=[OP], missed=3, dropped=1) == {
        ("pymon_collective_completed_sequence", ("0", "gloo")): 6,
        ("pymon_collectives_unread_total", ()): 4,
        ("pymon_flight_recorder_read_seconds_total", ()): 2.0,
        ("pymon_collectives_total", ("0", "gloo", "all_reduce")): 5,
        ("pymon_collective_bytes_total", ("0", "gloo", "all_reduce")): 2000,
    }


def test_durations_are_there_only_where_the_backend_has_them():
    timed = (b"all_reduce", 0, 5, 2000, 4, 3 * 10**9)
    found = of_recorder(groups=[GROUP], ops=[timed])
    assert found["pymon_collectives_timed_total", ("0", "gloo", "all_reduce")] == 4
    assert found["pymon_collective_seconds_total", ("0", "gloo", "all_reduce")] == 3.0


def test_a_rank_that_stands_in_a_collective_says_which_and_one_that_went_on_does_not():
    name = ("pymon_collective_open_seconds", ("0", "gloo", "all_reduce"))
    assert of_recorder(sequence=8, groups=[GROUP], ops=[OP])[name] == 7.0
    assert name not in of_recorder(sequence=9, groups=[GROUP], ops=[OP])


def test_waits_of_groups_and_of_ddp():
    waits = Waits((GroupWait("0", "gloo", 7, 0.5),), DdpWait(3, 0.25, 0.125))
    assert samples(waits=waits) == {
        ("pymon_collective_arrivals_matched_total", ("0", "gloo")): 7,
        ("pymon_collective_arrival_wait_seconds_total", ("0", "gloo")): 0.5,
        ("pymon_ddp_iterations_matched_total", ()): 3,
        ("pymon_ddp_arrival_wait_seconds_total", ()): 0.25,
        ("pymon_ddp_transfer_seconds_total", ()): 0.125,
    }

"""What the probe saw beside steps, as metrics; and nothing where there is nothing."""

from dataclasses import replace

from pymon.collectors.training_events import training_events
from pymon.exporters.probe_samples import about_probe
from pymon.link import layout
from pymon.link.event_section import KINDS, event_samples, events_sample
from pymon.model.catalog import BY_NAME
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

import json

from pymon.reports import box_trace
from tests.reports.boxes import box


def events(one):
    return json.loads(box_trace.render(one))["traceEvents"]


def test_steps_are_slices_with_their_phases_below():
    found = events(box())
    steps = [e for e in found if e["ph"] == "X" and e["tid"] == 1]
    phases = [e for e in found if e["ph"] == "X" and e["tid"] == 2]

    assert [e["name"] for e in steps] == ["step 1", "step 2", "step 3"]
    assert [round(e["dur"]) for e in steps] == [100_000] * 3
    assert [e["name"] for e in phases[:5]] == [
        "data_wait",
        "forward",
        "backward",
        "optimizer",
        "other",
    ]
    for step in steps:
        inside = [e for e in phases if e["args"]["step"] == int(step["name"].split()[1])]
        assert inside[0]["ts"] == step["ts"]
        ends = [e["ts"] + e["dur"] for e in inside]
        assert [e["ts"] for e in inside[1:]] == ends[:-1]
        assert abs(ends[-1] - step["ts"] - step["dur"]) < 1


def test_events_have_a_row_of_their_own():
    found = [e for e in events(box()) if e["ph"] == "X" and e["tid"] == 3]
    assert [(e["name"], round(e["dur"]), e["args"]["step"]) for e in found] == [
        ("compile", 50_000, 1),
        ("checkpoint_save", 250_000, 3),
    ]
    assert found[1]["ts"] - found[0]["ts"] == 200_000


def test_the_end_is_a_mark_with_its_evidence():
    end = events(box())[-1]
    assert (end["ph"], end["name"]) == ("i", "ended: killed by SIGKILL")
    assert end["ts"] == 10**15
    assert "Killed process" in end["args"]["evidence"][0]


def test_steps_without_phases_have_none():
    from dataclasses import replace

    bare = box()
    bare = replace(bare, steps=tuple(replace(step, phases_s=()) for step in bare.steps))
    assert [e for e in events(bare) if e.get("tid") == 2 and e["ph"] == "X"] == []

from pymon.daemon.ledger import EVENTS_MAX, PROCESSES_MAX, Ledger
from pymon.model.finding import Incident
from pymon.model.memory import AllocatorUse, HostUse, ProcessMemory
from pymon.model.run import RunCapture
from tests.daemon.flow import ClockDouble, finding, process, receipt
from tests.detectors.histories import snapshot


def ledger():
    return Ledger(ClockDouble())


def test_a_run_is_its_processes_as_they_stood_last():
    book = ledger()
    book.note(snapshot(10, process(steps=(0.1, 0.3), attached_real_ns=5 * 10**9)))
    book.note(snapshot(20, process(steps=(0.2,), ended="unknown", steps_total=3)))

    summary = book.summary("r1", "/state/report.html")
    (one,) = summary.processes
    assert (one.steps_total, one.median_step_s, one.ended) == (3, 0.2, "unknown")
    assert (summary.began_real_ns, summary.wall_s) == (5 * 10**9, 15.0)
    assert summary.report_path == "/state/report.html"


def test_the_peak_is_that_of_the_device_that_had_most():
    devices = [
        AllocatorUse(index, "", 1, 0.0, allocated_peak_bytes=peak)
        for index, peak in enumerate((5, 7, None))
    ]
    book = ledger()
    book.note(snapshot(10, process(memory=ProcessMemory(tuple(devices), HostUse()))))
    book.note(snapshot(10, process(attach_id="b" * 32, memory=ProcessMemory((), HostUse()))))
    peaks = [one.allocated_peak_bytes for one in book.summary("r1", None).processes]
    assert peaks == [7, None]


def test_time_stops_when_a_process_has_ended():
    book = ledger()
    for at_s in (10, 20, 500):
        book.note(snapshot(at_s, process(attached_real_ns=10**9, ended="x" if at_s > 10 else None)))

    assert book.summary("r1", None).wall_s == 19.0


def test_only_what_belongs_to_the_run_is_told():
    book = ledger()
    other = process(run_id="r2", attach_id="b" * 32, pid=200, uid=7)
    book.note(snapshot(1, process(), other))
    book.begin(Incident("i1", finding(), 1))
    book.begin(Incident("i2", finding("b" * 32, 200), 1))
    book.add_capture(RunCapture("c2", "manual", "/c2", (receipt("c2", 200),), (), None))

    assert [i.incident_id for i in book.summary("r1", None).incidents] == ["i1"]
    assert book.summary("r1", None).captures == ()
    assert [c.capture_id for c in book.summary("r2", None).captures] == ["c2"]
    assert len(book.summary("", None).processes) == 2
    assert (book.owners("r2"), book.owners(""), book.owners("r3")) == ({7}, {7, 1000}, set())


def test_without_a_diagnosis_the_incident_is_what_to_look_at_and_without_both_there_is_nothing():
    book = ledger()
    book.note(snapshot(1, process()))
    assert book.summary("r1", None).advice_first is None

    book.begin(Incident("i1", finding(), 1))
    assert book.summary("r1", None).advice_first == "step_slow: a step takes 0.2 s"


def test_what_is_kept_is_bounded():
    book = ledger()
    for number in range(PROCESSES_MAX + 3):
        book.note(snapshot(1, process(attach_id=str(number), run_id="")))
    for number in range(EVENTS_MAX + 3):
        book.begin(Incident(f"i{number}", finding("5"), 1))
        book.add_capture(RunCapture(f"c{number}", "", "", (receipt("c"),), (), None))

    summary = book.summary("", None)
    assert len(summary.processes) == PROCESSES_MAX
    assert len(summary.incidents) == len(summary.captures) == EVENTS_MAX
    assert book.captures_total == {("torch", "written"): EVENTS_MAX + 3}
    assert book.incidents_total == {"step_slow": EVENTS_MAX + 3}

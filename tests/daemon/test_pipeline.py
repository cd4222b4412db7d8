from tests.daemon.flow import DetectorDouble, finding, pipeline, process, ticks


def test_an_incident_that_is_over_is_told(tmp_path):
    detector = DetectorDouble(says=[finding()])
    flow = pipeline(tmp_path, detectors=[detector], automatic=False)
    ticks(flow)
    detector.says = []
    ticks(flow, 12)

    assert flow.journal.kinds() == ["incident", "incident_end"]
    assert flow.incidents.open == ()
    assert flow.cases.captures.requests == []


def test_a_detector_with_a_bug_costs_its_own_findings_only(tmp_path, caplog):
    broken, healthy = DetectorDouble("broken", says=ZeroDivisionError("oops")), DetectorDouble()
    healthy.says = [finding()]
    flow = pipeline(tmp_path, detectors=[broken, healthy], automatic=False)
    ticks(flow, 3)

    assert len(flow.incidents.open) == 1
    assert caplog.text.count("broken: ZeroDivisionError: oops") == 1  # not once a second


def test_detectors_see_the_time_they_asked_for_and_no_single_steps(tmp_path):
    detector = DetectorDouble(window_s=3.0)
    flow = pipeline(tmp_path, detectors=[detector])
    flow.runner.processes = (process(steps=(0.1, 0.2)),)
    ticks(flow, 6)

    assert detector.seen == [1, 2, 3, 4, 4, 4]
    assert flow._history[-1].outcomes[0].section.processes[0].new_steps == ()


def test_what_no_detector_reads_is_not_remembered(tmp_path):
    """A node's GPU readings of a quarter of an hour are tens of megabytes."""
    flow = pipeline(tmp_path, detectors=[DetectorDouble(reads=())])
    flow.runner.processes = (process(steps=(0.1, 0.2)),)
    ticks(flow, 2)

    assert [snapshot.outcomes for snapshot in flow._history] == [(), ()]
    assert flow.newest.outcomes != ()


def test_each_tick_is_published_with_the_open_incidents(tmp_path):
    published = []
    flow = pipeline(
        tmp_path,
        detectors=[DetectorDouble(says=[finding()])],
        automatic=False,
        publish=lambda snapshot, incidents: published.append((snapshot, incidents)),
    )
    ticks(flow, 2)

    assert [len(incidents) for _, incidents in published] == [1, 1]
    assert published[-1][0] is flow.newest

from pymon.base.units import ratio
from pymon.daemon.incidents import Incidents
from pymon.model.finding import Finding, Subject
from tests.clock_double import ClockDouble


def finding(detector="step_slow", who="a"):
    return Finding(detector, Subject(who * 32, 1, None, ""), ratio(2), ratio(1), "slow")


def watch(incidents, clock, *ticks):
    """One tick a second; gives (second, began, ended) of those in which something happened."""
    told = []
    for held in ticks:
        began, ended = incidents.update([finding()] if held else [])
        if began or ended:
            told.append((clock.now_s, len(began), len(ended)))
        clock.now_s += 1
    return told


def test_one_begins_once_and_ends_once():
    clock = ClockDouble()
    told = watch(Incidents(clock, quiet_s=3), clock, *[1] * 5, *[0] * 10)

    assert told == [(0, 1, 0), (8, 0, 1)]


def test_a_finding_that_flaps_stays_one_incident():
    clock = ClockDouble()
    told = watch(Incidents(clock, quiet_s=3), clock, *[1, 0, 0] * 20)

    assert told == [(0, 1, 0)]


def test_within_the_cooldown_nothing_new_begins():
    clock = ClockDouble()
    incidents = Incidents(clock, quiet_s=1, cooldown_s=20)
    told = watch(incidents, clock, 1, 0, 0, *[1] * 30)

    assert told == [(0, 1, 0), (2, 0, 1), (22, 1, 0)]


def test_each_detector_and_each_process_has_its_own():
    incidents = Incidents(ClockDouble())
    began, _ = incidents.update([finding(), finding("data_starved"), finding(who="b")])

    assert len({incident.incident_id for incident in began}) == 3
    assert incidents.open == tuple(began)

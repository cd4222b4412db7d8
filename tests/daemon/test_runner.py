import threading
import time
from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.daemon.runner import Runner, run_once
from pymon.model.host import ShmSection
from pymon.model.snapshot import State

SECTION = ShmSection(1, 1, 0)


@dataclass
class CollectorDouble:
    """Does what the test says."""

    action: object = None
    name: str = "double"
    interval_s: ClassVar[float] = 1.0
    timeout_s: ClassVar[float] = 0.1
    runs: list = field(default_factory=list)

    def collect(self):
        self.runs.append(time.monotonic())
        if isinstance(self.action, Exception):
            raise self.action
        if callable(self.action):
            self.action()
        return SECTION


def test_the_four_ways_to_end():
    hang = threading.Event()
    collectors = [
        CollectorDouble(name="ok"),
        CollectorDouble(SourceAbsent("no driver"), "absent"),
        CollectorDouble(SourceFailed("it broke"), "failed"),
        CollectorDouble(hang.wait, "late"),
    ]

    outcomes = {outcome.collector: outcome for outcome in Runner(collectors).tick()}
    hang.set()

    assert {name: outcome.state.value for name, outcome in outcomes.items()} == {
        name: name for name in outcomes
    }
    assert outcomes["ok"].section == SECTION
    assert outcomes["absent"].reason == "no driver"
    assert all(outcomes[name].section is None for name in ("absent", "failed", "late"))


def test_a_bug_of_a_collector_ends_as_its_failure():
    outcome = run_once(CollectorDouble(ZeroDivisionError("oops")))

    assert outcome.state is State.FAILED
    assert outcome.reason == "ZeroDivisionError: oops"


def test_a_hung_collector_holds_nobody_up_and_is_not_started_twice():
    hang = threading.Event()
    stuck, healthy = CollectorDouble(hang.wait, "stuck"), CollectorDouble(name="healthy")
    runner = Runner([stuck, healthy])

    began_s = time.monotonic()
    for _ in range(3):
        states = [outcome.state for outcome in runner.tick(everything=True)]
    took_s = time.monotonic() - began_s
    hang.set()

    assert states == [State.LATE, State.OK]
    assert len(stuck.runs) == 1
    assert len(healthy.runs) == 3
    assert took_s < 1.0


def test_what_is_not_due_gives_what_it_gave_last():
    collector = CollectorDouble()
    runner = Runner([collector])

    assert runner.tick() == runner.tick()
    assert len(collector.runs) == 1


def test_what_a_late_run_brought_comes_with_the_next_tick_and_is_not_lost():
    hang = threading.Event()
    late = CollectorDouble(hang.wait, "late")
    runner = Runner([late])

    assert runner.tick(everything=True)[0].state is State.LATE
    hang.set()
    deadline_s = time.monotonic() + 5
    while (outcome := runner.tick(everything=True)[0]).state is State.LATE:
        assert time.monotonic() < deadline_s

    assert outcome.section == SECTION
    assert len(late.runs) == 1


def test_a_seldom_collector_that_was_late_is_told_with_the_next_tick_and_not_an_interval_later():
    hang = threading.Event()
    late = CollectorDouble(hang.wait, "late")
    late.interval_s = 3600.0
    runner = Runner([late])

    assert runner.tick()[0].state is State.LATE
    hang.set()
    deadline_s = time.monotonic() + 5
    while runner.tick()[0].state is State.LATE:
        assert time.monotonic() < deadline_s

    assert len(late.runs) == 1


def test_quick_ones_share_a_thread_and_one_that_hangs_costs_those_after_it_one_tick():
    hang = threading.Event()
    threads = {}

    def note(name):
        return lambda: threads.update({name: threading.get_ident()})

    first = CollectorDouble(note("pressure"), "pressure")
    second = CollectorDouble(note("host"), "host")
    other = CollectorDouble(note("shm"), "shm")
    runner = Runner([first, second, other])
    assert [outcome.state for outcome in runner.tick(everything=True)] == [State.OK] * 3
    assert threads["pressure"] == threads["host"] != threads["shm"]

    second.action = hang.wait
    states = [outcome.state for outcome in runner.tick(everything=True)]
    assert states == [State.OK, State.LATE, State.OK]
    hang.set()
    deadline_s = time.monotonic() + 5
    while State.LATE in {outcome.state for outcome in runner.tick(everything=True)}:
        assert time.monotonic() < deadline_s
    assert len(second.runs) == 2

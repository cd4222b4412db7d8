import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import ClassVar

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.daemon.runner import Runner, run_once
from pymon.model.host import ShmSection
from pymon.model.snapshot import State
from tests.waiting import PATIENCE_S, until

SECTION = ShmSection(1, 1, 0)


@dataclass
class CollectorDouble:
    """Does what the test says."""

    action: object = None
    name: str = "double"
    interval_s: ClassVar[float] = 3600.0
    timeout_s: float = PATIENCE_S
    runs: list = field(default_factory=list)

    def collect(self):
        self.runs.append(time.monotonic())
        if isinstance(self.action, Exception):
            raise self.action
        if callable(self.action):
            self.action()
        return SECTION


def patient(*collectors):
    """A runner that waits for its collectors as long as each of them allows."""
    return Runner(collectors, budget_s=PATIENCE_S)


def tick(runner, everything=False):
    """The outcomes of one tick, in a loop of its own."""
    return asyncio.run(runner.tick(everything))


def hanging(event, name, timeout_s=0.1):
    return CollectorDouble(event.wait, name, timeout_s)


def until_not_late(runner, index=0):
    """The first outcome of that collector that is not late."""

    def outcome():
        found = tick(runner, everything=True)[index]
        return found if found.state is not State.LATE else None

    return until(outcome)


def test_the_four_ways_to_end():
    hang = threading.Event()
    collectors = [
        CollectorDouble(name="ok"),
        CollectorDouble(SourceAbsent("no driver"), "absent"),
        CollectorDouble(SourceFailed("it broke"), "failed"),
        hanging(hang, "late"),
    ]

    outcomes = {outcome.collector: outcome for outcome in tick(patient(*collectors))}
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
    stuck, healthy = hanging(hang, "stuck"), CollectorDouble(name="healthy")
    runner = patient(stuck, healthy)

    for _ in range(3):
        states = [outcome.state for outcome in tick(runner, everything=True)]
    hang.set()

    assert states == [State.LATE, State.OK]
    assert len(stuck.runs) == 1
    assert len(healthy.runs) == 3


def test_one_that_has_ended_before_the_next_one_begins_ends_no_tick():
    runner = patient(
        CollectorDouble(name="first"), CollectorDouble(lambda: time.sleep(0.01), "last")
    )

    for _ in range(20):
        assert [outcome.state for outcome in tick(runner, everything=True)] == [State.OK] * 2


def test_a_tick_with_nothing_due_waits_for_nothing():
    runner = Runner((CollectorDouble(),), budget_s=10 * PATIENCE_S)
    tick(runner)
    began_s = time.monotonic()
    tick(runner)

    assert time.monotonic() - began_s < PATIENCE_S


def test_a_tick_waits_for_all_of_them_no_longer_than_its_budget():
    hang = threading.Event()
    stuck = [hanging(hang, f"stuck {number}", 10 * PATIENCE_S) for number in range(3)]

    outcomes = tick(Runner(stuck, budget_s=0.1))
    hang.set()

    assert [outcome.state for outcome in outcomes] == [State.LATE] * 3


def test_what_is_not_due_gives_what_it_gave_last():
    collector = CollectorDouble()
    runner = patient(collector)

    assert tick(runner) == tick(runner)
    assert len(collector.runs) == 1


def test_what_a_late_run_brought_comes_with_the_next_tick_and_is_not_lost():
    hang = threading.Event()
    late = hanging(hang, "late")
    runner = patient(late)

    assert tick(runner, everything=True)[0].state is State.LATE
    hang.set()
    outcome = until_not_late(runner)

    assert outcome.section == SECTION
    assert len(late.runs) == 1


def test_a_seldom_collector_that_was_late_is_told_with_the_next_tick_and_not_an_interval_later():
    hang = threading.Event()
    late = hanging(hang, "late")
    runner = patient(late)

    assert tick(runner)[0].state is State.LATE
    hang.set()
    until(lambda: tick(runner)[0].state is State.OK)

    assert len(late.runs) == 1


def test_quick_ones_share_a_thread_and_one_that_hangs_costs_those_after_it_one_tick():
    hang = threading.Event()
    threads = {}

    def note(name):
        return lambda: threads.update({name: threading.get_ident()})

    first = CollectorDouble(note("pressure"), "pressure")
    second = CollectorDouble(note("host"), "host")
    other = CollectorDouble(note("shm"), "shm")
    runner = patient(first, second, other)
    assert [outcome.state for outcome in tick(runner, everything=True)] == [State.OK] * 3
    assert threads["pressure"] == threads["host"] != threads["shm"]

    second.action, second.timeout_s = hang.wait, 0.1
    states = [outcome.state for outcome in tick(runner, everything=True)]
    assert states == [State.OK, State.LATE, State.OK]
    hang.set()
    assert until_not_late(runner, 1).state is State.OK
    assert len(second.runs) == 2

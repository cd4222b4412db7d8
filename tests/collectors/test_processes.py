import struct
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from pymon.collectors.processes import KEEP_ENDED_MAX, KEEP_ENDED_S, ProcessesCollector
from pymon.link.memory_section import MemorySample
from pymon.link.page import StepSample, TrainSample
from pymon.link.run_section import run_sample
from pymon.link.wire import Hello
from pymon.model.progress import RunState
from pymon.model.training import Counting
from tests.clock_double import ClockDouble


@dataclass
class PageDouble:
    """A page whose state the test sets."""

    sample: TrainSample | None
    steps: tuple = ()
    lost: int = 0
    closed: bool = False
    used: object = None

    def train(self):
        return self.sample

    def steps_after(self, step):
        return tuple(one for one in self.steps if one.step > step), self.lost

    def gpu(self):
        return None

    def cupti(self):
        return None

    def run(self):
        return run_sample(RUN)

    def gpu_steps_after(self, step):
        return ()

    def events(self):
        return None

    def collectives(self):
        return None

    def memory(self):
        return self.used

    def recorder(self):
        return None

    def events_after(self, number):
        return ()

    def close(self):
        self.closed = True


@dataclass
class AttachedDouble:
    hello: Hello
    page: PageDouble
    ended: str | None = None
    pid: int = 7
    uid: int = 1000
    host_pid: int | None = None
    dropped: str = ""

    def drop(self, why):
        self.dropped = why


def sample(steps_total, counting=1):
    return TrainSample(
        counting=counting,
        steps_total=steps_total,
        backwards_total=steps_total,
        optimizer_calls_total=steps_total,
        batches_total=steps_total,
        step_ns_total=steps_total * 10**7,
        first_boundary_mono_ns=1,
        last_boundary_mono_ns=99 * 10**9,
        own_ns_total=5000,
        capturing=False,
        loader_workers=2,
        prefetches_total=0,
        optimizers_seen=1,
        training_tid=7,
        dropped_total=0,
        samples_total=80,
        tokens_total=None,
        stall_ns_total=10**9,
        usual_step_ns=None,
        evaluation_ns_total=2 * 10**9,
        checkpoint_ns_total=3 * 10**9,
        phase_ns_total=(1, 2, 3, 4, 5),
        user_phase_ns_total=(("loss", 6),),
        step_histogram=(0,) * 32,
        phase_histograms=((0,) * 32,) * 5,
    )


def step(number, duration_ms=10, profiled=False):
    ns = duration_ms * 10**6
    about = (8, None, 4 * 10**6, 5 * 10**6)
    return StepSample(number, 0, ns, 1, 1, 1, profiled, False, 0, *about, (0, ns, 0, 0, 0))


# State evaluating since 40 s, process start 10 s, start-up 20 s; two workers; the rest is not known.
RUN = struct.pack("<80Q", 2, 40 * 10**9, 10 * 10**9, 20 * 10**9, *[0] * 13, 3, *[0] * 62)


@pytest.fixture
def one():
    """A collector with one attached process, and its page."""
    attached = AttachedDouble(Hello("a" * 32, 7, rank=3, job_id="j"), PageDouble(sample(2)))
    attached.page.steps = (step(1), step(2, 30))
    clock = ClockDouble(100.0)
    return ProcessesCollector(lambda: [attached], clock), attached, clock


def test_new_steps_come_once(one):
    collector, attached, _ = one

    (first,) = collector.collect().processes
    attached.page.steps += (step(3),)
    (second,) = collector.collect().processes
    (third,) = collector.collect().processes

    assert [s.step for s in first.new_steps] == [1, 2]
    assert [s.step for s in second.new_steps] == [3]
    assert third.new_steps == ()
    assert third.new_median_s is None
    assert first.new_median_s == 0.02
    assert (first.rank, first.pid, first.uid, first.counting) == (3, 7, 1000, Counting.OPTIMIZER)
    assert first.open_step_age_s == 1.0


def test_what_lies_beside_the_steps_comes_from_the_page(one):
    (process,) = one[0].collect().processes
    progress = process.progress
    assert (progress.state, progress.state_age_s) == (RunState.EVALUATING, 60.0)
    assert (progress.process_age_s, progress.startup_s) == (90.0, 20.0)
    assert (progress.loader.workers, progress.loader.batch_size) == (2, None)
    assert (progress.last_save_real_ns, progress.restarts) == (None, None)
    assert (process.samples_total, process.tokens_total) == (80, None)
    assert (process.stall_s_total, process.usual_step_s) == (1.0, None)
    assert (process.evaluation_s_total, process.checkpoint_s_total) == (2.0, 3.0)
    step = process.new_steps[0]
    assert (step.samples, step.tokens) == (8, None)
    assert (step.evaluation_s, step.checkpoint_s) == (0.004, 0.005)


def test_profiled_steps_are_told_but_not_compared(one):
    collector, attached, _ = one
    attached.page.steps = (step(1, 10), step(2, 500, profiled=True))

    (process,) = collector.collect().processes

    assert (process.new_steady, process.new_median_s) == (1, 0.01)
    assert len(process.new_steps) == 2


def test_a_page_that_cannot_be_read_now_keeps_what_was_known(one):
    collector, attached, _ = one
    collector.collect()
    attached.page.sample = None

    (process,) = collector.collect().processes

    assert process.steps_total == 2
    assert process.new_steps == ()


def test_an_ended_process_stays_a_quarter_of_an_hour_with_its_totals(one):
    collector, attached, clock = one
    collector.collect()
    attached.ended = "unknown"
    attached.page.sample, attached.page.steps = sample(3), (step(3),)

    (last,) = collector.collect().processes
    collector.attachments = list
    clock.now_s += KEEP_ENDED_S - 1
    (later,) = collector.collect().processes
    clock.now_s += 2

    assert [s.step for s in last.new_steps] == [3]
    assert (later.steps_total, later.ended, later.new_steps) == (3, "unknown", ())
    assert collector.collect().processes == ()


def test_a_page_is_let_go_with_the_last_look_at_it(one):
    collector, attached, _ = one
    collector.collect()
    assert not attached.page.closed
    attached.ended = "exited"

    collector.collect()

    assert attached.page.closed


def test_a_trainer_that_connects_again_goes_on_where_it_was(one):
    collector, attached, _ = one
    collector.collect()
    again = AttachedDouble(attached.hello, PageDouble(sample(3), (*attached.page.steps, step(3))))
    collector.attachments = lambda: [again]

    (process,) = collector.collect().processes

    assert [s.step for s in process.new_steps] == [3]
    assert attached.page.closed
    assert not again.page.closed


def test_who_attaches_and_ends_without_end_pushes_out_only_ones_own(one):
    collector, attached, clock = one
    attached.ended = "exited"
    collector.collect()
    for number in range(KEEP_ENDED_MAX + 50):
        clock.now_s += 0.01
        page = PageDouble(sample(1))
        one_more = AttachedDouble(Hello(f"{number:032x}", 8), page, "exited", pid=8, uid=2000)
        collector.attachments = lambda one_more=one_more: [one_more]
        collector.collect()

    uids = [process.uid for process in collector.collect().processes]
    assert (uids.count(1000), uids.count(2000)) == (1, KEEP_ENDED_MAX)


LIES = [
    ({"steps_total": 1}, (), "steps_total fell from 2 to 1"),
    ({"step_ns_total": 5}, (), "step_ns_total fell from 20,000,000 to 5"),
    ({"batches_total": 2**64 - 1}, (), "batches_total is 18,446,744,073,709,551,615"),
    ({}, (step(2**60),), "its ring names step 1,152,921,504,606,846,976"),
]


@pytest.mark.parametrize(("changed", "steps", "why"), LIES)
def test_a_page_that_says_what_cannot_be_is_dropped_and_its_last_word_is_not_believed(
    one, changed, steps, why
):
    collector, attached, _ = one
    collector.collect()
    honest = attached.page.sample
    attached.page.sample, attached.page.steps = replace(honest, **changed), steps

    (process,) = collector.collect().processes
    assert attached.dropped.startswith(why)
    assert (process.steps_total, process.batches_total, process.new_steps) == (2, 2, ())

    attached.ended = f"page dropped: {attached.dropped}"
    (process,) = collector.collect().processes
    assert process.ended == attached.ended
    assert (process.steps_total, process.steps_lost_total) == (2, 0)
    assert attached.page.closed


def test_a_page_whose_memory_cannot_be_is_dropped(one):
    collector, attached, _ = one
    attached.page.used = MemorySample((), {"rss_bytes": (5, 1)})
    (process,) = collector.collect().processes
    assert process.memory.host.rss_bytes == 5
    assert not attached.dropped

    attached.page.used = MemorySample((), {"rss_bytes": (2**60, 1)})
    (process,) = collector.collect().processes
    assert attached.dropped.startswith("rss_bytes is 1,152,921,504,606,846,976")
    assert process.memory.host.rss_bytes == 5


def test_a_lock_that_is_stuck_is_given_ten_looks(one):
    collector, attached, _ = one
    collector.collect()
    honest, attached.page.sample = attached.page.sample, None
    for _ in range(9):
        collector.collect()
    attached.page.sample = honest
    collector.collect()
    attached.page.sample = None
    for _ in range(9):
        collector.collect()
    assert not attached.dropped

    collector.collect()
    assert attached.dropped == "its lock is stuck"


def test_a_page_that_was_dropped_is_judged_anew_when_it_comes_back(one):
    collector, attached, _ = one
    collector.collect()
    attached.page.sample = replace(attached.page.sample, steps_total=1)
    collector.collect()
    attached.ended = "page dropped: it lied"
    collector.collect()
    again = AttachedDouble(attached.hello, PageDouble(sample(3), (step(3),)))
    collector.attachments = lambda: [again]

    (process,) = collector.collect().processes

    assert (process.steps_total, process.ended, again.dropped) == (3, None, "")
    assert [s.step for s in process.new_steps] == [3]


def test_a_way_of_counting_that_is_not_known_is_none(one):
    collector, attached, _ = one
    attached.page.sample = sample(2, counting=99)
    assert collector.collect().processes[0].counting is Counting.NONE


def test_a_real_trainers_page_is_read(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    code = (
        "import os, torch, pymon; pymon.attach()\n"
        "from pymon.probe import attach\n"
        "from pymon.link.page import PageReader\n"
        "model = torch.nn.Linear(4, 4); opt = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(5):\n"
        "    opt.zero_grad(); model(torch.ones(4)).sum().backward(); opt.step()\n"
        "page = PageReader.open(attach._state['sender']._fd)\n"
        "print(page.train().steps_total, len(page.steps_after(0)[0]))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert shown.stdout == "5 5\n", shown.stderr

"""Made-up histories of training processes: the double of a node that was watched for a while."""

from dataclasses import replace

from pymon.model.distribution import Histogram
from pymon.model.snapshot import Outcome, Snapshot, State
from pymon.model.training import Counting, TrainingProcess, TrainingSection

PROCESS = TrainingProcess(
    attach_id="a" * 32,
    pid=100,
    uid=1000,
    rank=0,
    local_rank=0,
    world_size=1,
    job_id="77",
    run_id="",
    script="train.py",
    attached_real_ns=0,
    ended=None,
    counting=Counting.OPTIMIZER,
    steps_total=0,
    steps_lost_total=0,
    backwards_total=0,
    optimizer_calls_total=0,
    batches_total=0,
    phase_s_total=(0.0,) * 5,
    step_histogram=Histogram(1e-6, (0,) * 32, 0.0),
    own_cost_s_total=0.0,
    open_step_age_s=0.0,
    capturing=False,
    new_steps=(),
)


def snapshot(at_s, *processes):
    """One tick."""
    outcome = Outcome("processes", State.OK, 0.0, TrainingSection(processes))
    return Snapshot(int(at_s * 1e9), int(at_s * 1e9), (outcome,))


class Node:
    """Ticks once a second; each tick says how many steps ended in it, how long they took, and how long they waited."""

    def __init__(self, **facts):
        self.process = replace(PROCESS, **facts)
        self.snapshots = []

    def tick(self, steps, step_s, wait_s=0.0):
        median_s = step_s if steps else None
        phases = (wait_s, step_s - wait_s, 0.0, 0.0, 0.0) if steps else ()
        self.process = replace(
            self.process,
            steps_total=self.process.steps_total + steps,
            new_steady=steps,
            new_median_s=median_s,
            new_phase_mean_s=phases,
        )
        self.snapshots.append(snapshot(len(self.snapshots), self.process))
        return self

    def run(self, seconds, step_s, wait_s=0.0):
        """So many seconds of a steady loop; slow loops end a step every few ticks."""
        owed = 0.0
        for _ in range(seconds):
            owed += 1.0 / step_s
            self.tick(int(owed), step_s, wait_s)
            owed -= int(owed)
        return self

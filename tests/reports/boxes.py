"""A black box for reports."""

from pymon.model.blackbox import BlackBox
from pymon.model.events import TrainingEvent
from pymon.model.progress import RunState
from pymon.model.training import Counting, StepRecord


def box(count=3, **changes):
    records = tuple(
        StepRecord(n, n * 10**8, 0.1, (0.02, 0.03, 0.03, 0.01, 0.01), 1, 1, 1, n == 2, False)
        for n in range(1, count + 1)
    )
    facts = {
        "attach_id": "ab" * 16,
        "pid": 4711,
        "uid": 1000,
        "rank": 3,
        "world_size": 8,
        "job_id": "77",
        "run_id": "",
        "script": "train.py",
        "python": "3.11",
        "torch": "2.13",
        "attached_real_ns": 0,
        "ended_real_ns": 10**18,
        "ended": "killed by SIGKILL",
        "evidence": ("kernel log: Out of memory: Killed process 4711 (python)",),
        "counting": Counting.OPTIMIZER,
        "steps_total": count,
        "capturing": False,
        "doing": "backward",
        "doing_s": 1.5,
        "since_step_s": 2.0,
        "steps": records,
        "step_began_real_ns": tuple(10**18 + n * 10**8 for n in range(count)),
        "state": RunState.TRAINING,
        "state_s": 90.0,
        "events": (
            TrainingEvent("compile", 10**8, 0.05, 1, 0),
            TrainingEvent("checkpoint_save", 3 * 10**8, 0.25, 3, 0),
        ),
        "event_began_real_ns": (10**18, 10**18 + 2 * 10**8),
        "last_event_s": 1.0,
    }
    return BlackBox(**(facts | changes))

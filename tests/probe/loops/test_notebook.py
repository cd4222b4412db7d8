"""Cells of a notebook: run again, given up, seconds apart; in a double, and in a real kernel where there is one."""

import contextlib
import sys
import time
import types

import pytest

from tests.probe.loops import child

IDLE_S = 0.3
MS = 1_000_000
CELLS = {
    "model": """
import time, torch
from tests.probe.loops.parts import new, loss
""",
    "train": """
model, optimizer = new()
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)  # keeps the optimizer of the run before alive for a while
for _ in range(5):
    loss(model).backward()
    optimizer.step()
""",
    "raise": """
for step in range(5):
    loss(model).backward()
    if step == 2:
        raise ValueError("the user's own")
    optimizer.step()
""",
    "backward": "loss(model).backward()",
    "step": "optimizer.step()",
}
ORDER = (
    "model",
    "train",
    "train",
    "raise",
    "train",
    "backward",
    "step",
    "backward",
    "backward",
    "step",
)
COUNTS = (5 + 5 + 2 + 5 + 2, 5 + 5 + 3 + 5 + 3, 5 + 5 + 2 + 5 + 2, 0)


class EventsDouble:
    """IPython's events: `register`, and a call after each cell."""

    def __init__(self):
        self.after = []

    def register(self, event, call):
        assert event == "post_run_cell"
        self.after.append(call)


def cells_double():
    import pymon

    events = EventsDouble()
    shell = types.SimpleNamespace(events=events)
    sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
    assert pymon.attach()
    assert len(events.after) == 1
    namespace = {}
    for name in ORDER:
        with contextlib.suppress(ValueError):
            exec(CELLS[name], namespace)
        for call in events.after:
            call(None)
        time.sleep(IDLE_S)


def no_step_is_idle(page):
    """Nine pauses lie between ten cells; a busy machine may hold up a step or two for as long."""
    return sum(step["duration_ns"] >= IDLE_S * 1000 * MS for step in page.ring[1:]) < 3


def test_cells_run_again_count_each_of_their_steps_and_no_idle_time(fresh):
    page = fresh(cells_double, PYMON="")
    assert page.counts == COUNTS
    assert no_step_is_idle(page)


def kernel():
    import nbformat
    from nbclient import NotebookClient

    code = [CELLS[name] for name in ORDER]
    code.append("from tests.probe.loops import child; child.report(rank=1)")
    cells = [nbformat.v4.new_code_cell(f"import time; time.sleep({IDLE_S})\n{one}") for one in code]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, allow_errors=True, timeout=120, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    return {
        "rank": 0,
        "errors": [output.ename for output in outputs if output.output_type == "error"],
    }


def test_a_real_kernel(launched):
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook, page = launched(child.command(kernel))
    assert notebook.errors == ["ValueError"]
    assert page.counts == COUNTS
    assert no_step_is_idle(page)

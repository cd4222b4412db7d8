import contextlib
import os
import signal

import pytest

from pymon.daemon.nvml.marks import Marks
from pymon.daemon.nvml.supervisor import Supervisor
from tests.daemon.nvml.driver import DriverDouble, settings
from tests.nvml_double import STATE, NodeDouble


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Makes a node in this state and a supervisor of it; its workers end with the test."""
    made = []

    def make(state=None, kill=None, **more):
        node = NodeDouble(tmp_path, state)
        monkeypatch.setenv(STATE, str(node.path))
        parts = {"marks": Marks(tmp_path), **({"kill": kill} if kill else {})}
        supervisor = Supervisor(settings(node, **more), **parts)
        made.append(supervisor)
        return DriverDouble(node, supervisor)

    yield make
    for supervisor in made:
        supervisor.close()
        for child in [*supervisor._stuck, *([supervisor._child] if supervisor._child else [])]:
            with contextlib.suppress(OSError):
                os.kill(child.process.pid, signal.SIGKILL)
            child.process.wait(60)

"""A capture manager with its doubles."""

import asyncio
import os
from dataclasses import dataclass, field, replace

import pytest

from pymon.capture.budget import CaptureSettings
from pymon.capture.manager import CaptureManager
from pymon.link import wire
from pymon.model.capture import CaptureRequest
from tests.clock_double import ClockDouble
from tests.detectors.histories import PROCESS


@dataclass
class OrdersDouble:
    """Trainers that obey at once, unless told otherwise."""

    processes: tuple = ()
    manager: object = None
    answer: str = "written"
    gone: bool = False
    orders: list = field(default_factory=list)

    def targets(self):
        return self.processes

    def send(self, attach_id, order):
        self.orders.append((attach_id, order))
        if self.gone:
            return False
        folder = f"{order.capture_id}-{attach_id}"
        if self.answer == "written":
            path = os.path.join(order.spool, folder)
            os.mkdir(path)
            with open(os.path.join(path, "trace.json"), "w") as file:
                file.write('{"traceEvents": []}')
        if self.answer == "silence":
            return True
        if self.answer == "death":
            asyncio.get_running_loop().call_soon(self.manager.lost, attach_id)
            return True
        receipt = wire.Receipt(
            order.capture_id,
            self.answer,
            folder="../../etc",
            files=["trace.json", "../passwd"],
            steps=3,
        )
        asyncio.get_running_loop().call_soon(self.manager.receipt, attach_id, receipt)
        return True


@dataclass
class KinetoDouble:
    known: tuple = ()

    def processes(self):
        return self.known


ONE = replace(PROCESS, uid=os.getuid(), steps_total=100, new_median_s=0.1)


@pytest.fixture
def node(tmp_path):
    """A manager with its doubles; `capture` runs a request to its end."""

    class Node:
        orders = OrdersDouble((ONE,))
        clock = ClockDouble()

        def __init__(self):
            for name in ("captures", "spool"):
                (tmp_path / name).mkdir()
            settings = CaptureSettings(max_s=0.1, min_free_bytes=1)
            self.manager = CaptureManager(
                settings,
                self.orders,
                KinetoDouble(),
                self.clock,
                tmp_path / "captures",
                tmp_path / "spool",
            )
            self.orders.manager = self.manager
            self.count = 0

        def capture(self, *pids, cause="manual"):
            self.count += 1
            request = CaptureRequest(f"c{self.count}", pids, 3, cause, 0)
            return asyncio.run(self.manager.capture(request))

        def folders(self):
            return sorted(path.name for path in (tmp_path / "captures").iterdir())

    Node.orders = OrdersDouble((ONE,))
    Node.clock = ClockDouble()
    return Node()

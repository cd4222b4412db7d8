"""Capture orders against a real torch loop; run as a process of its own, one JSON object per scenario."""

import contextlib
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

import torch

from pymon.link.wire import CaptureOrder
from pymon.probe.captures import Captures
from pymon.probe.profiler_registry import ProfilerRegistry, registry
from tests.capture.native_double import NativeDouble

ATTACH_ID = "0123456789abcdef" * 2


class Loop:
    """A training loop whose optimizer hook calls the captures, as the probe's does."""

    def __init__(self, spool, profilers=None):
        self.spool = str(spool)
        self.native = NativeDouble()
        self.captures = Captures(self.native, ATTACH_ID, profilers)
        self.model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.optimizer.register_step_post_hook(lambda *_: self.native.boundary())
        self.receipts = []

    def order(self, **changes):
        fields = {"capture_id": "c1", "spool": self.spool, "min_free_bytes": 1, **changes}
        refused = self.captures.accept(CaptureOrder(**fields))
        self.receipts += [refused] if refused else []

    def run(self, steps, pause_s=0.0):
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = self.model(torch.randn(4, 16)).sum()
            loss.backward()
            if loss.item() > 1e9:
                print("never")
            self.optimizer.step()
            time.sleep(pause_s)
            self.receipts += self.captures.poll()
        return self

    def outcome(self, **more):
        folder = Path(self.spool) / f"c1-{ATTACH_ID}"
        trace = folder / "trace.json"
        document = json.loads(trace.read_text()) if trace.exists() else {}
        sites = folder / "call_sites.json"
        return {
            "receipts": [vars(receipt) for receipt in self.receipts],
            "folder": folder.exists(),
            "steps": sorted(
                event["name"]
                for event in document.get("traceEvents", ())
                if event.get("cat") == "user_annotation"
                and event["name"].startswith("ProfilerStep#")
            ),
            "sites": json.loads(sites.read_text()) if sites.exists() else None,
            "profiled": self.native.profiled,
            "callback": self.native.callback is not None,
            "capturing": self.native.capturing,
            "tensor_is_clean": "item" not in vars(torch.Tensor),
            "enabled": torch._C._autograd._profiler_enabled(),
            **more,
        }


def user_events(profile):
    """How much of the user's own trace is there."""
    return sum(event.name == "aten::addmm" for event in profile.events())


def written(spool):
    loop = Loop(spool).run(3)
    loop.order(steps=2)
    return loop.run(6).outcome()


def absolute_step(spool):
    loop = Loop(spool).run(3)
    loop.order(steps=2, first_step=8)
    return loop.run(10).outcome()


def past_step(spool):
    loop = Loop(spool).run(9)
    loop.order(first_step=4)
    return loop.run(2).outcome()


def twice(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=1)
    loop.order(capture_id="c2")
    loop.run(5)
    loop.order(capture_id="c3", steps=1)
    return loop.run(5).outcome()


def events_bound(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=50, max_events=200)
    return loop.run(60).outcome()


def one_step_too_large(spool):
    loop = Loop(spool).run(1)
    loop.order(max_events=3)
    return loop.run(4).outcome()


def user_active(spool):
    loop = Loop(spool).run(1)
    with torch.profiler.profile() as profile:
        loop.order(steps=2)
        loop.run(4)
    return loop.run(1).outcome(user_events=user_events(profile))


def user_warming_up(spool):
    loop = Loop(spool).run(1)
    schedule = torch.profiler.schedule(wait=0, warmup=4, active=2)
    loop.order(steps=2, first_step=5)  # accepted; the user's warm-up begins before the step comes
    with torch.profiler.profile(schedule=schedule) as profile:
        for _ in range(6):
            loop.run(1)
            profile.step()
    return loop.run(1).outcome(user_events=user_events(profile))


def user_starts_in_the_middle(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=20)
    loop.run(4)
    with torch.profiler.profile() as profile:
        loop.run(3)
    profile.export_chrome_trace(str(Path(spool) / "user.json"))
    return loop.run(2).outcome(user_events=user_events(profile))


def user_starts_in_another_thread(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=100_000)
    loop.run(4)
    seen = []

    def profiled():
        with torch.profiler.profile() as profile:
            for _ in range(3):
                torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2))
        seen.append(user_events(profile))

    thread = threading.Thread(target=profiled)
    thread.start()
    while thread.is_alive():
        loop.run(1, pause_s=0.001)
    return loop.run(2).outcome(user_events=seen[0])


def emit_itt_starts_in_the_middle(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=20)
    loop.run(4)
    # raises RuntimeError on a build without ITT or beside another profiler: the same as without us
    with contextlib.suppress(AttributeError), torch.autograd.profiler.emit_nvtx(enabled=False):
        loop.run(1)
    return loop.run(30).outcome()


def disk_short(spool):
    loop = Loop(spool).run(1)
    loop.order(min_free_bytes=1 << 60)
    return loop.run(2).outcome()


def disk_fills_up(spool):
    loop = Loop(spool).run(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        loop.order(steps=2)
        loop.run(6)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return loop.outcome()


def no_boundary(spool):
    loop = Loop(spool).run(1)
    loop.order(max_s=0.05)
    time.sleep(0.1)
    loop.receipts += loop.captures.poll()
    return loop.run(2).outcome()


def boundary_ceases_in_recording(spool):
    loop = Loop(spool).run(1)
    loop.order(max_s=0.05)
    loop.run(1)
    loop.captures._run.deadline_s -= 3600
    loop.receipts += loop.captures.poll()
    return loop.run(3).outcome()


def boundary_ceases_between_two_recordings(spool):
    loop = Loop(spool).run(1)
    loop.order()
    loop.run(2)  # sized, and the steps that are kept have not begun
    loop.captures._run.deadline_s -= 3600
    loop.receipts += loop.captures.poll()
    return loop.run(3).outcome()


def seconds_bound(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=1000, max_s=0.3)
    return loop.run(60, pause_s=0.01).outcome()


def spool_gone(spool):
    loop = Loop(Path(spool) / "absent").run(1)
    loop.order()
    return loop.run(2).outcome()


def torch_raises(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=2)
    loop.run(2)
    original = torch.profiler._KinetoProfile.start
    torch.profiler._KinetoProfile.start = lambda self: 1 / 0
    try:
        loop.captures._run._sizing = True
        loop.run(3)
    finally:
        torch.profiler._KinetoProfile.start = original
    return loop.outcome()


def interrupted(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=5)
    loop.run(3)

    def interrupt(step):
        raise KeyboardInterrupt

    loop.captures._run.boundary = interrupt
    raised = False
    try:
        loop.run(1)
    except KeyboardInterrupt:
        raised = True
    return loop.run(2).outcome(raised=raised)


def user_override(spool):
    def item(self):
        return 7.0

    torch.Tensor.item = item
    try:
        loop = Loop(spool).run(1)
        loop.order(steps=2)
        loop.run(6)
        kept = torch.Tensor.item is item
    finally:
        del torch.Tensor.item
    return loop.outcome(kept=kept)


def names_missing(spool):
    profilers = ProfilerRegistry()
    original = torch.autograd.profiler.profile._prepare_trace
    del torch.autograd.profiler.profile._prepare_trace
    try:
        profilers.install()
    finally:
        torch.autograd.profiler.profile._prepare_trace = original
    loop = Loop(spool)
    loop.captures = Captures(loop.native, ATTACH_ID, profilers)
    profilers.install = lambda: None
    profilers._installed = True
    loop.order()
    return loop.run(2).outcome()


def fork_child(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=3)
    loop.run(3)
    child = os.fork()
    if child == 0:
        before = loop.captures._run
        loop.native.boundary()
        os._exit(0 if loop.captures._run is before and loop.captures._run.recording else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return loop.run(6).outcome(child=status)


def main():
    out, *names = sys.argv[1:]
    for name in names:
        spool = Path(out) / name
        spool.mkdir()
        registry().on_user_session = None
        print(json.dumps({"name": name, **globals()[name](spool)}), flush=True)


if __name__ == "__main__":
    main()

"""Capture orders against a real torch loop; run as a process of its own, one JSON object per scenario."""

import contextlib
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from unittest.mock import patch

import torch

from pymon.link.wire import CaptureOrder
from pymon.probe import capture_run
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
        fetch = torch.utils.data.dataloader._BaseDataLoaderIter.__next__
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
            "loader_is_clean": not hasattr(fetch, "__wrapped__"),
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


class Counting(torch.utils.data.Dataset):
    def __len__(self):
        return 600

    def __getitem__(self, index):
        return torch.full((16,), float(index))


def evaluate(loop):
    """600 batches, in none of torch's gradient modes: nothing but the fetches shows it."""
    return sum(loop.model(batch).sum().item() for batch in torch.utils.data.DataLoader(Counting()))


def evaluation_in_sizing(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=2, max_events=10_000)
    loop.run(1)
    batches = len(list(torch.utils.data.DataLoader(Counting())))
    return loop.run(6).outcome(batches=batches)


def evaluation_in_a_kept_step(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=5)
    loop.run(4)
    recording = loop.captures._run.recording
    evaluate(loop)
    stopped = loop.captures._run is None
    loop.run(6)
    loop.order(capture_id="c2", steps=1)
    return loop.run(6).outcome(recording=recording, stopped=stopped)


def batches_of_the_training(spool):
    loop = Loop(spool).run(1)
    batches = iter(torch.utils.data.DataLoader(Counting()))
    loop.order(steps=3)
    for _ in range(10):
        for _ in range(4):  # gradients of four batches in each step
            next(batches)
        loop.run(1)
    return loop.outcome()


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
    loop.order()
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
    loop.order(steps=1000, max_s=1.0)
    return loop.run(120, pause_s=0.01).outcome()


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


def user_waits_in_the_middle(spool):
    """The user's profiler is opened while ours records; its schedule waits, warms up, records."""
    loop = Loop(spool).run(1)
    loop.order(steps=20)
    loop.run(4)
    schedule = torch.profiler.schedule(wait=2, warmup=1, active=3, repeat=1)
    with torch.profiler.profile(schedule=schedule) as profile:
        for _ in range(6):
            loop.run(1)
            profile.step()
    profile.export_chrome_trace(str(Path(spool) / "user.json"))
    return loop.run(2).outcome(user_events=user_events(profile))


def user_schedules_again_and_again(spool):
    """Orders while the user's own profiler goes through its schedule: whatever becomes of ours."""
    loop = Loop(spool).run(1)
    traces = []
    schedule = torch.profiler.schedule(wait=2, warmup=1, active=2)
    ready = lambda profile: traces.append(user_events(profile))  # noqa: E731
    with torch.profiler.profile(schedule=schedule, on_trace_ready=ready) as profile:
        for number in range(40):
            loop.order(capture_id=f"c{number}", steps=1)
            loop.run(1)
            profile.step()
    return loop.run(8).outcome(traces=traces)


def memory_short(spool):
    loop = Loop(spool).run(1)
    with patch.object(capture_run, "available_memory_bytes", lambda: 1 << 20):
        loop.order(min_free_bytes=2 << 20)
    return loop.run(2).outcome()


def memory_short_after_sizing(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=3)
    with patch.object(capture_run, "available_memory_bytes", lambda: 1 << 10):
        return loop.run(6).outcome()


def export_raises(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=2)

    def broken(self, path):
        Path(path).write_text("half")
        raise RuntimeError("torch could not")

    with patch.object(torch.profiler._KinetoProfile, "export_chrome_trace", broken):
        return loop.run(8).outcome()


def stop_raises(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=2)
    loop.run(4)
    stop = torch.profiler._KinetoProfile.stop

    def broken(self):
        stop(self)
        raise RuntimeError("torch could not")

    with patch.object(torch.profiler._KinetoProfile, "stop", broken):
        return loop.run(8).outcome()


def restored(spool):
    """Whatever is wrapped while steps are kept is the very same object again."""
    owners = (
        torch.Tensor,
        torch.cuda,
        torch.cuda.Stream,
        torch.cuda.Event,
        torch.utils.data.dataloader._BaseDataLoaderIter,
    )

    def now():
        return [{name: id(value) for name, value in vars(owner).items()} for owner in owners]

    loop = Loop(spool).run(1)
    before = now()
    loop.order(steps=3)
    loop.run(4)
    within = now()
    one = torch.ones(1)
    values = [bool(one), float(one), int(one), [7, 8][one.long()], one.tolist(), one.item()]
    loop.run(6)
    again = [bool(one), float(one), int(one), [7, 8][one.long()], one.tolist(), one.item()]
    return loop.outcome(changed=before != within, same=before == now(), values=[values, again])


def compiled_in_the_middle(spool):
    """A function is compiled for the first time while calls are wrapped, and again afterwards."""

    @torch.compile(backend="eager")
    def function(x):
        y = x * 2
        if y.sum().item() > 0:
            y = y + 1
        return y

    loop = Loop(spool).run(1)
    loop.order(steps=3)
    loop.run(4)
    results = [function(torch.ones(2)).tolist()]
    loop.run(6)
    results += [function(torch.ones(2)).tolist(), function(-torch.ones(3)).tolist()]
    return loop.outcome(results=results)


def names_missing(spool):
    profilers = ProfilerRegistry()
    original = torch.autograd.profiler.profile._prepare_trace
    del torch.autograd.profiler.profile._prepare_trace
    try:
        profilers.install()
    finally:
        torch.autograd.profiler.profile._prepare_trace = original
    profilers.install = lambda: None
    loop = Loop(spool, profilers)
    loop.order()
    return loop.run(2).outcome()


def fork_child(spool):
    loop = Loop(spool).run(1)
    loop.order(steps=3)
    loop.run(3)
    child = os.fork()
    if child == 0:
        before = loop.captures._run
        loop.captures._lock.acquire()  # as if another thread held it when the process forked
        loop.native.boundary()
        evaluate(loop)
        with torch.profiler.profile():
            pass
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

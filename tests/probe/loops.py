"""Training loops of many kinds, each in a forked child of one process that attached through the boot finder.

`python -m tests.probe.loops` prints one JSON line per loop: its name and what the child's own page says. A child that
trains opens a page of its own, and reads it through /proc/self/fd. Forking saves importing torch each time.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import queue
import sys
import threading
import time
import traceback
import warnings

os.environ["PYMON"] = "1"
os.environ["PYMON_SOCKET"] = "/nonexistent/agent.sock"
importlib.import_module("pymon.probe.boot")  # before torch, as from the .pth

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

import pymon  # noqa: E402
from pymon.link.page import PageReader  # noqa: E402

LOOPS = {}


def loop(function):
    LOOPS[function.__name__] = function
    return function


def new():
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def loss(model):
    return model(torch.randn(8, 4)).pow(2).mean()


class Slow(Dataset):
    """Three batches of 8; each sample takes 2 ms."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.randn(4)


@loop
def plain(steps=5):
    model, optimizer = new()
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


@loop
def accumulation():
    model, optimizer = new()
    for micro in range(8):
        loss(model).backward()
        if micro % 4 == 3:
            optimizer.step()


@loop
def gan():
    (critic, critic_optimizer), (generator, generator_optimizer) = new(), new()
    for _ in range(5):
        loss(critic).backward()
        critic_optimizer.step()
        loss(generator).backward()
        generator_optimizer.step()


@loop
def scaler_skips_two_of_five():
    model, optimizer = new()
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for step in range(5):
        optimizer.zero_grad()
        scaler.scale(loss(model)).backward()
        if step in (1, 3):
            model.weight.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()


@loop
def lbfgs():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        return value

    for _ in range(5):
        optimizer.step(closure)


@loop
def super_step():
    class Twice(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    model = nn.Linear(4, 1)
    optimizer = Twice(model.parameters(), lr=0.01)
    for _ in range(5):
        loss(model).backward()
        optimizer.step()


@loop
def step_raises_once():
    class Raises(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            if self.calls == 2:
                raise ValueError("the user's own")
            return super().step(closure)

    model = nn.Linear(4, 1)
    optimizer = Raises(model.parameters(), lr=0.01)
    for _ in range(5):
        loss(model).backward()
        with contextlib.suppress(ValueError):
            optimizer.step()


@loop
def two_threads():
    threads = [threading.Thread(target=plain, args=(100,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@loop
def forward_and_backward_inside_step():
    model, optimizer = new()
    for (inputs,) in DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=8):

        def closure(inputs=inputs):
            optimizer.zero_grad()
            time.sleep(0.005)  # the forward pass
            value = model(inputs).pow(2).mean()
            value.backward()
            return value

        optimizer.step(closure)


def with_loader(workers):
    model, optimizer = new()
    for _epoch in range(2):
        for inputs in DataLoader(Slow(), batch_size=8, num_workers=workers):
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()


@loop
def loader_without_workers():
    with_loader(0)


@loop
def loader_with_two_workers():
    with_loader(2)


@loop
def loader_inside_a_dataset():
    class Nested(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return next(iter(DataLoader(TensorDataset(torch.randn(4, 4)), batch_size=4)))[0]

    model, optimizer = new()
    for inputs in DataLoader(Nested(), batch_size=1):
        model(inputs).pow(2).mean().backward()
        optimizer.step()


@loop
def another_thread_loads():
    ready, (model, optimizer) = queue.Queue(1), new()

    def fill():
        for inputs in DataLoader(Slow(), batch_size=4):
            ready.put(inputs)
        ready.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (inputs := ready.get()) is not None:
        model(inputs).pow(2).mean().backward()
        optimizer.step()


@loop
def no_optimizer():
    model, _ = new()
    for _ in range(100):
        loss(model).backward()


@loop
def autograd_grad():
    model, optimizer = new()
    for _ in range(5):
        gradients = torch.autograd.grad(loss(model), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()


@loop
def explicit_steps():
    model, optimizer = new()
    for _ in range(5):
        loss(model).backward()
        optimizer.step()
        pymon.step()


@loop
def explicit_steps_of_three_calls():
    model, optimizer = new()
    for iteration in range(5):
        for _ in range(3):
            loss(model).backward()
            optimizer.step()
            if iteration == 0:
                break  # what ran before the first mark was counted by the hooks
        pymon.step()


@loop
def explicit_steps_alone():
    for _ in range(5):
        time.sleep(0.002)
        pymon.step()


@loop
def named_phases():
    model, optimizer = new()

    @pymon.phase("decorated")
    def decorated():
        time.sleep(0.002)

    for _ in range(5):
        with pymon.phase("augment"):
            time.sleep(0.004)
        decorated()
        loss(model).backward()
        optimizer.step()
    for number in range(10):  # two too many, with the two above four
        with pymon.phase(f"more {number}"):
            pass
    plain(2)  # names show from the next step on


@loop
def optimizers_in_backward():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)))
    optimizers = {one: torch.optim.SGD([one], lr=0.01) for one in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(5):
        loss(model).backward()


@loop
def reentrant_checkpoint():
    model, optimizer = new()
    for _ in range(5):
        inputs = torch.randn(8, 4, requires_grad=True)
        checkpoint(model, inputs, use_reentrant=True).pow(2).mean().backward()
        optimizer.step()


@loop
def phases_of_known_length():
    model, optimizer = new()
    for inputs in DataLoader(Slow(), batch_size=8):
        time.sleep(0.04)
        value = model(inputs).pow(2).mean()
        value.backward()
        time.sleep(0.02)
        optimizer.step()


@loop
def a_forked_child_trains():
    plain()
    before = page()
    child = os.fork()
    if child == 0:
        plain(50)
        own = page()
        os._exit(0 if own["steps_total"] == 50 and own["attach_id"] != before["attach_id"] else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the child has no page of its own"
    assert page() == before, "the child wrote to its parent's page"


def page():
    """What this process's newest page says, as builtins; empty without one."""
    fds = [int(fd) for fd in os.listdir("/proc/self/fd")]
    pages = [fd for fd in fds if _target(fd).startswith("/memfd:pymon-page")]
    if not pages:
        return {}
    reader = PageReader.open(max(pages))
    said = dataclasses.asdict(reader.train())
    steps, lost = reader.steps_after(0)
    said["steps"] = [dataclasses.asdict(step) for step in steps]
    return {**said, "lost": lost, "attach_id": reader.header.attach_id, "pages": len(pages)}


def _target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, function in LOOPS.items():
        child = os.fork()
        if child == 0:
            error = ""
            try:
                function()
            except BaseException:
                error = traceback.format_exc()
            print(json.dumps({"loop": name, "error": error, "page": page()}), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())

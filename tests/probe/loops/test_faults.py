"""What goes wrong in a step, and processes that fork, start anew or attach again."""

import contextlib
import os
import signal
import sys
import threading

import pytest
import torch
from torch.utils.data import DataLoader

import pymon
from tests.probe.loops import child
from tests.probe.loops.parts import Samples, loss, new, train


class Refuses(torch.autograd.Function):
    """Its backward pass raises."""

    error = RuntimeError

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise Refuses.error("the user's own")


def backward_raises(error):
    model, optimizer = new()
    Refuses.error = {"RuntimeError": RuntimeError, "KeyboardInterrupt": KeyboardInterrupt}[error]
    raised = 0
    for step in range(6):
        value = loss(model)
        try:
            (Refuses.apply(value) if step % 3 == 1 else value).backward()
        except Refuses.error:
            raised += 1
            continue  # the batch is left out, as after running out of memory
        optimizer.step()
    return {"raised": raised}


@pytest.mark.parametrize("error", ["RuntimeError", "KeyboardInterrupt"])
def test_a_backward_pass_that_raises_is_none(counted, error):
    page = counted(backward_raises, error)
    assert page.raised == 2
    assert page.counts == (4, 4, 4, 0)


def forward_raises():
    model, optimizer = new()
    for step in range(6):
        with contextlib.suppress(ValueError):
            if step % 3 == 1:
                raise ValueError("the user's own")
            train(model, optimizer, 1)


def test_a_forward_pass_that_raises_is_no_step(counted):
    assert counted(forward_raises).counts == (4, 4, 4, 0)


def optimizer_raises_and_is_called_again():
    class Raises(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            if self.calls == 2:
                raise ValueError("the user's own")
            return super().step(closure)

    model, optimizer = new(Raises)
    for _ in range(5):
        loss(model).backward()
        try:
            optimizer.step()
        except ValueError:
            optimizer.step()


def test_a_call_that_raises_and_is_made_again_is_one_step(counted):
    assert counted(optimizer_raises_and_is_called_again).counts == (5, 5, 5, 0)


def ctrl_c():
    model, optimizer = new()
    caught = 0
    for _ in range(4):
        train(model, optimizer, 1)
        try:
            value = loss(model)
            value.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGINT))
            value.backward()
            optimizer.step()
            sum(range(1000))  # where the interpreter looks for signals, at the latest
        except KeyboardInterrupt:
            caught += 1
    train(model, optimizer, 4)
    return {"caught": caught}


def test_ctrl_c_in_a_backward_pass_reaches_the_user_and_training_can_go_on(counted):
    page = counted(ctrl_c)
    assert page.caught == 4
    assert 8 <= page.steps <= 12  # an interrupt may come before or after the optimizer's call
    assert page.steps == page.optimizer_calls


def fork_within_a_step(where):
    model, optimizer = new()
    train(model, optimizer, 2)
    value = loss(model)
    pids = []

    def fork(*_):
        pid = os.fork()
        if pid:
            pids.append(pid)
            return
        if where != "forward":  # the rest of the pass or the call is the parent's
            os._exit(0)
        train(*new(), 7)
        child.report(rank=1)
        os._exit(0)

    if where == "forward":
        fork()
    if where == "backward":
        value.register_hook(fork)
    value.backward()
    if where == "optimizer":
        optimizer.register_step_pre_hook(fork)
    optimizer.step()
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    return {"rank": 0, "forks": len(pids)}


@pytest.mark.parametrize("where", ["backward", "optimizer"])
def test_a_fork_in_the_middle_of_a_step_leaves_the_parents_count_alone(counted, where):
    page = counted(fork_within_a_step, where)
    assert page.forks == 1
    assert page.counts == (3, 3, 3, 0)


def test_a_fork_that_trains_has_a_page_of_its_own(launched):
    parent, child_page = launched(child.command(fork_within_a_step, "forward"))
    assert parent.counts == (3, 3, 3, 0)
    assert child_page.counts == (7, 7, 7, 0)
    assert parent.attach_id != child_page.attach_id


def attached_again_and_again():
    model, optimizer = new()
    threads = [threading.Thread(target=pymon.attach) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert pymon.attach()
    train(model, optimizer, 3)
    for thread in threads:
        thread.join()
    assert pymon.attach()
    train(model, optimizer, 2)


@pytest.mark.parametrize("first", ["1", ""])  # attached before, or by the first of these calls
def test_attaching_many_times_counts_once(fresh, first):
    assert fresh(attached_again_and_again, PYMON=first).counts == (5, 5, 5, 0)


def starts_anew(times):
    train(*new(), 3)
    if times:
        child.report(name=f"before {times}")
        os.execv(sys.executable, [sys.executable, *child.command(starts_anew, times - 1)])


def test_after_exec_the_same_process_has_a_new_page(launched):
    pages = launched(child.command(starts_anew, 2))
    assert len({page.pid for page in pages}) == 1
    assert len({page.attach_id for page in pages}) == 3
    assert [page.counts for page in pages] == [(3, 3, 3, 0)] * 3


class Interrupted(Samples):
    def __getitem__(self, index):
        if index == 20:
            raise KeyboardInterrupt
        return super().__getitem__(index)


def interrupted_in(where):
    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            if where == "optimizer" and len(batches) == 3:
                raise KeyboardInterrupt
            return super().step(closure)

    model, optimizer = new(Optimizer)
    batches = []
    try:
        for inputs in DataLoader((Interrupted if where == "data" else Samples)(40), batch_size=8):
            batches.append(inputs)
            model(inputs).pow(2).mean().backward()
            optimizer.step()
    except KeyboardInterrupt:
        count, batches = len(batches), []
        train(model, optimizer, 3)
        return {"caught_after": count}


@pytest.mark.parametrize(
    ("where", "counts"), [("data", (2 + 3, 5, 5, 2)), ("optimizer", (2 + 3, 6, 5, 3))]
)
def test_ctrl_c_in_a_fetch_or_an_optimizer_ends_neither(counted, where, counts):
    page = counted(interrupted_in, where)
    assert page.caught_after == counts[3]
    assert page.counts == counts

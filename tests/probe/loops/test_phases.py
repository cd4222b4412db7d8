"""Where the time of a step goes."""

import time

import pytest
from torch.utils.data import DataLoader

import pymon
from tests.probe.loops.parts import Samples, loss, new, train

DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(5)
MS = 1_000_000


def phases_of_known_length():
    model, optimizer = new()
    for inputs in DataLoader(Samples(24, 0.002), batch_size=8):
        time.sleep(0.04)
        value = model(inputs).pow(2).mean()
        value.register_hook(lambda gradient: time.sleep(0.03))
        value.backward()
        time.sleep(0.02)
        optimizer.step()


def test_time_goes_to_the_phase_it_was_spent_in(counted):
    ring = counted(phases_of_known_length).ring
    for step in ring:
        phases = step["phase_ns"]
        assert phases[DATA_WAIT] >= 16 * MS  # 8 samples of 2 ms
        assert phases[FORWARD] >= 40 * MS
        assert phases[BACKWARD] >= 30 * MS
        assert phases[OTHER] >= 20 * MS
    # On a busy machine any phase may take longer than it should, but not each time.
    assert min(step["phase_ns"][OPTIMIZER] for step in ring) < 20 * MS


def without_a_loader(fetches):
    model, optimizer = new()
    for _ in range(fetches):
        next(iter(DataLoader(Samples(8), batch_size=8)))
    for _ in range(5):
        time.sleep(0.01)
        loss(model).backward()
        optimizer.step()


@pytest.mark.parametrize("fetches", [0, 1])
def test_without_a_batch_the_forward_pass_follows_the_step_before(counted, fetches):
    for step in counted(without_a_loader, fetches).ring[1 + fetches :]:
        assert step["phase_ns"][FORWARD] >= 10 * MS


def forward_and_backward_inside_step():
    model, optimizer = new()
    for inputs in DataLoader(Samples(40), batch_size=8):

        def closure(inputs=inputs):
            optimizer.zero_grad()
            time.sleep(0.005)  # the forward pass
            value = model(inputs).pow(2).mean()
            value.backward()
            return value

        optimizer.step(closure)


def test_a_forward_pass_inside_the_optimizers_call_is_not_its_time(counted):
    page = counted(forward_and_backward_inside_step)
    assert page.counts == (5, 5, 5, 5)
    for step in page.ring:
        assert step["phase_ns"][FORWARD] >= 5 * MS
    assert min(step["phase_ns"][OPTIMIZER] for step in page.ring) < 5 * MS


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
    train(model, optimizer, 2)  # names show from the next step on


def test_named_phases_are_timed_and_the_ninth_is_dropped(counted):
    page = counted(named_phases)
    named = dict(page.user_phase_ns)
    assert named["augment"] >= 20 * MS
    assert named["decorated"] >= 10 * MS
    assert len(named) == 8
    assert page.dropped == 4

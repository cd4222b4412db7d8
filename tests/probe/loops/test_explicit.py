"""pymon.step(): what the hooks cannot tell apart, and loops in which no hook fires."""

import time

import pytest
import torch
from torch.utils.data import DataLoader

import pymon
from tests.probe.loops.parts import Samples, loss, new, train

EXPLICIT = 2


def marked():
    model, optimizer = new()
    for _ in range(5):
        train(model, optimizer, 1)
        pymon.step()


def test_a_mark_beside_the_hooks_counts_no_step_twice(counted):
    page = counted(marked)
    assert page.counts == (5, 5, 5, 0)
    assert page.counting == EXPLICIT


def marked_gan(critic_steps):
    (critic, critic_optimizer), (generator, generator_optimizer) = new(), new()
    for _ in range(6):
        train(critic, critic_optimizer, critic_steps)
        train(generator, generator_optimizer, 1)
        pymon.step()


def test_marks_settle_what_is_one_step_of_a_gan(counted):
    """Documented: of the first iteration the hooks counted the critic's steps."""
    assert counted(marked_gan, 1).counts == (6, 12, 12, 0)
    page = counted(marked_gan, 5)
    assert page.counts == (5 + 5, 36, 36, 0)
    assert [step["optimizer_calls"] for step in page.ring[6:]] == [6, 6, 6, 6]


def marks_alone():
    for _ in range(5):
        time.sleep(0.002)
        pymon.step()


def test_marks_need_no_hook(counted):
    page = counted(marks_alone)
    assert page.counts == (5, 0, 0, 0)
    assert all(step["duration_ns"] >= 2_000_000 for step in page.ring[1:])


def inference(marks):
    model, _ = new()
    model.eval()
    with torch.inference_mode():
        for inputs in DataLoader(Samples(40), batch_size=8):
            model(inputs)
            if marks:
                pymon.step()


def test_inference_with_marks_counts_its_batches(counted):
    page = counted(inference, True)
    assert page.counts == (5, 0, 0, 5)
    assert [step["batches"] for step in page.ring] == [1] * 5


def test_inference_without_marks_is_no_training(counted):
    """Documented: a process that only fetches batches is no rank."""
    assert counted(inference, False).steps is None


def own_update(marks):
    model, _ = new()
    for _ in range(80):
        loss(model).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.01)
                parameter.grad = None
        if marks:
            pymon.step()


def test_an_update_by_hand_with_marks_is_counted_and_not_estimated(counted):
    page = counted(own_update, True)
    assert page.counts == (80, 80, 0, 0)
    assert not any(step["estimated"] for step in page.ring)


def long_accumulation(marks):
    model, optimizer = new()
    for micro in range(3 * 100):
        loss(model).backward()
        if micro % 100 == 99:
            optimizer.step()
            if marks:
                pymon.step()


@pytest.mark.parametrize("marks", [False, True])
def test_over_64_micro_batches_the_first_group_is_estimated(counted, marks):
    """Documented: an optimizer that cannot be hooked looks the same until the first call of one that can."""
    page = counted(long_accumulation, marks)
    assert sum(step["estimated"] for step in page.ring) == 36
    assert page.steps == 36 + 3


def marked_after_an_estimate():
    model, _ = new()
    for backward in range(100):
        loss(model).backward()
        if backward >= 79:
            pymon.step()


def test_a_first_mark_after_an_estimated_step_is_that_step(counted):
    page = counted(marked_after_an_estimate)
    assert page.steps == 36


def marked_everywhere():
    model, optimizer = new()
    loader = DataLoader(Samples(24), batch_size=8)
    for _ in range(2):
        for inputs in loader:
            for _ in range(2):  # two updates a batch, one step by the user's word
                model(inputs).pow(2).mean().backward()
                optimizer.step()
            pymon.step()


def test_two_updates_for_each_batch_can_be_one_step(counted):
    page = counted(marked_everywhere)
    assert page.backwards == page.optimizer_calls == 12
    assert page.batches == 6
    assert [step["optimizer_calls"] for step in page.ring] == [1, 1, 2, 2, 2, 2, 2]

"""Loops with one optimizer, and the ways into a backward pass."""

import threading

import torch
from torch.utils.checkpoint import checkpoint

import pymon
from tests.probe.loops.parts import loss, new, train

OPTIMIZER_COUNTED = 1


def plain(steps=5):
    train(*new(), steps)


def test_each_call_of_the_optimizer_is_a_step(counted):
    page = counted(plain)
    assert page.counts == (5, 5, 5, 0)
    assert page.counting == OPTIMIZER_COUNTED
    assert not any(step["estimated"] for step in page.ring)


def attached_by_a_call():
    model, optimizer = new()  # made before: the hooks are looked up at each call
    assert pymon.attach()
    train(model, optimizer, 5)


def test_attached_by_a_call_in_the_script_it_counts_the_same(fresh):
    assert fresh(attached_by_a_call, PYMON="").counts == (5, 5, 5, 0)


def accumulation(micro_batches, group):
    model, optimizer = new()
    for micro in range(micro_batches):
        loss(model).backward()
        if micro % group == group - 1:
            optimizer.step()
            optimizer.zero_grad()


def test_gradient_accumulation_counts_its_micro_batches_beside_the_steps(counted):
    page = counted(accumulation, 12, 4)
    assert page.counts == (3, 12, 3, 0)
    assert [step["backwards"] for step in page.ring] == [4, 4, 4]


def test_an_accumulation_that_is_not_finished_is_no_step(counted):
    assert counted(accumulation, 10, 4).steps == 2


def two_losses():
    model, optimizer = new()
    for _ in range(5):
        loss(model).backward()
        loss(model).backward()
        optimizer.step()


def test_two_losses_in_a_step_are_two_backward_passes(counted):
    assert counted(two_losses).counts == (5, 10, 5, 0)


def autograd_grad():
    model, optimizer = new()
    for _ in range(5):
        gradients = torch.autograd.grad(loss(model), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()


def test_autograd_grad_is_a_backward_pass(counted):
    assert counted(autograd_grad).counts == (5, 5, 5, 0)


def functional_grad():
    model, optimizer = new()
    inputs = torch.randn(8, 4)

    def value(parameters):
        return torch.func.functional_call(model, parameters, (inputs,)).pow(2).mean()

    for _ in range(5):
        gradients = torch.func.grad(value)(dict(model.named_parameters()))
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name].detach()
        optimizer.step()


def test_torch_func_grad_is_a_backward_pass(counted):
    assert counted(functional_grad).counts == (5, 5, 5, 0)


def reentrant_checkpoint():
    model, optimizer = new()
    for _ in range(5):
        inputs = torch.randn(8, 4, requires_grad=True)
        checkpoint(model, inputs, use_reentrant=True).pow(2).mean().backward()
        optimizer.step()


def test_recomputation_inside_a_backward_pass_is_a_part_of_it(counted):
    assert counted(reentrant_checkpoint).counts == (5, 5, 5, 0)


class Deeper(torch.autograd.Function):
    """Its backward pass runs another one, `depth` levels down."""

    @staticmethod
    def forward(ctx, value, depth):
        ctx.depth = depth
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.depth:
            with torch.enable_grad():
                inner = torch.ones(1, requires_grad=True)
                Deeper.apply(inner, ctx.depth - 1).sum().backward()
        return gradient, None


def in_the_engines_own_threads():
    model, optimizer = new()
    threads = set()
    # As CUDA's backward passes do at any depth, on the CPU the engine leaves the calling thread from 60 levels on.
    for _ in range(5):
        value = Deeper.apply(loss(model), 150)
        value.register_hook(lambda gradient: threads.add(threading.get_ident()))
        value.backward()
        optimizer.step()


def test_backward_passes_in_the_engines_own_threads_are_parts_of_the_outermost(counted):
    assert counted(in_the_engines_own_threads).counts == (5, 5, 5, 0)


def two_threads(steps):
    threads = [threading.Thread(target=plain, args=(steps,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_threads_that_train_at_once_are_added_up(counted):
    page = counted(two_threads, 100)
    assert page.counts == (200, 200, 200, 0)
    assert 0 < page.own_ns < page.step_ns


def plain_in_a_thread():
    thread = threading.Thread(target=plain)
    thread.start()
    thread.join()


def test_training_need_not_be_in_the_main_thread(counted):
    assert counted(plain_in_a_thread).counts == (5, 5, 5, 0)


def no_optimizer(backwards):
    model, _ = new()
    for _ in range(backwards):
        loss(model).backward()


def test_without_an_optimizer_steps_are_estimated_and_say_so(counted):
    page = counted(no_optimizer, 100)
    assert (page.steps, page.backwards) == (36, 100)  # from the 65th on
    assert all(step["estimated"] for step in page.ring)

"""torch.compile around the model, the optimizer and the whole step: each in a process of its own."""

import shutil

import pytest
import torch

from tests.probe.loops.parts import loss, new

SIZES = (8, 8, 16, 24, 8, 16)  # the second size compiles again, for any size


def model_compiled(backend):
    model, optimizer = new(torch.optim.Adam)
    compiled = torch.compile(model, backend=backend)
    for size in SIZES:
        optimizer.zero_grad()
        compiled(torch.randn(size, 4)).pow(2).mean().backward()
        optimizer.step()


def optimizer_compiled(backend):
    model, optimizer = new(torch.optim.Adam)
    step = torch.compile(optimizer.step, backend=backend)
    for _ in SIZES:
        optimizer.zero_grad()
        loss(model).backward()
        step()


def step_compiled(backend):
    model, optimizer = new(torch.optim.Adam)

    @torch.compile(backend=backend)
    def step(inputs):
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()

    for size in SIZES:
        step(torch.randn(size, 4))


def autograd_compiled(backend):
    torch._dynamo.config.compiled_autograd = True
    model, optimizer = new()

    @torch.compile(backend=backend)
    def gradients(inputs):
        model(inputs).pow(2).mean().backward()

    for size in SIZES:
        optimizer.zero_grad()
        gradients(torch.randn(size, 4))
        optimizer.step()


@pytest.mark.parametrize(
    "loop", [model_compiled, optimizer_compiled, step_compiled, autograd_compiled]
)
def test_compiled_steps_count_as_others(counted, loop):
    """What is traced to compile is no backward pass; aot_eager compiles all but the machine's code."""
    assert counted(loop, "aot_eager").counts == (6, 6, 6, 0)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@pytest.mark.parametrize("loop", [model_compiled, step_compiled])
def test_inductor_counts_the_same(fresh, loop):
    assert fresh(loop, "inductor").counts == (6, 6, 6, 0)


def exported():
    model, optimizer = new()
    torch.export.export(model, (torch.randn(8, 4),))
    for _ in range(5):
        loss(model).backward()
        optimizer.step()


def test_an_export_counts_nothing(counted):
    assert counted(exported).counts == (5, 5, 5, 0)

"""Doubles of frameworks that need GPUs: what they call, in their order, on small models of the CPU.

Megatron-LM (core/pipeline_parallel/schedules.py), DeepSpeed 0.19.8 (runtime/zero/stage_1_and_2.py and stage3.py,
runtime/fp16/fused_optimizer.py), torchtitan (components/optimizer.py), CUDA graphs as PyTorch's notes show them.
"""

import pytest
import torch
from torch import nn
from torch.autograd import Variable
from torch.utils.data import DataLoader

import pymon
from tests.probe.loops.parts import Samples, loss, new


def megatron_double(micro_batches, data):
    """1F1B of one stage: its `custom_backward` calls the engine itself, the outputs' storage being gone by then."""
    model, optimizer = new(torch.optim.AdamW)
    batches = iter(DataLoader(Samples(8 * 5 * micro_batches), batch_size=8)) if data else None
    for _ in range(5):
        optimizer.zero_grad()
        outputs = []
        for _ in range(micro_batches):
            inputs = next(batches) if data else torch.randn(8, 4)
            outputs.append(model(inputs).pow(2).mean())
            if len(outputs) == 2:
                custom_backward_double(outputs.pop(0))
        while outputs:
            custom_backward_double(outputs.pop(0))
        optimizer.step()


def custom_backward_double(output):
    Variable._execution_engine.run_backward(
        tensors=(output,),
        grad_tensors=(torch.ones_like(output),),
        keep_graph=False,
        create_graph=False,
        inputs=(),
        allow_unreachable=True,
        accumulate_grad=True,
    )


@pytest.mark.parametrize(
    "data", [True, False]
)  # the first and last stage fetch, those between do not
def test_megatron_whose_backward_bypasses_tensor_backward(counted, data):
    page = counted(megatron_double, 4, data)
    assert page.counts == (5, 20, 5, 20 * data)
    assert [step["backwards"] for step in page.ring] == [4] * 5


class FusedDouble:
    """Before the first step one with gradients of zero, which makes room for the optimizer's state."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        self.step()

    def backward(self, value):
        value.backward()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


class Zero1Double(FusedDouble):
    """`step()` calls the user's optimizer once for each of its groups, with that group alone in it."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        groups = self.optimizer.param_groups
        for group in groups:
            self.optimizer.param_groups = [group]
            self.optimizer.step()
        self.optimizer.param_groups = groups
        self.optimizer.zero_grad()


class Zero3Double(FusedDouble):
    """`step()` calls it once for each sub-group of parameters, which it puts into their group for the call."""

    def step(self):
        for group in self.optimizer.param_groups:
            parameters, group["params"] = group["params"], []
            for parameter in parameters:
                group["params"] = [parameter]
                self.optimizer.step()
            group["params"] = parameters
        self.optimizer.zero_grad()


def deepspeed_double(zero, micro_batches):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    decay = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    engine = {0: FusedDouble, 1: Zero1Double, 3: Zero3Double}[zero](
        torch.optim.AdamW(groups, lr=0.01)
    )
    for micro in range(5 * micro_batches):
        engine.backward(loss(model))
        if micro % micro_batches == micro_batches - 1:
            engine.step()


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize(("zero", "calls", "calls_at_first"), [(0, 1, 1), (1, 2, 0), (3, 4, 4)])
def test_deepspeed_which_steps_the_optimizer_for_each_group(
    counted, zero, calls, calls_at_first, micro_batches
):
    page = counted(deepspeed_double, zero, micro_batches)
    assert page.counts == (5, 5 * micro_batches, 5 * calls + calls_at_first, 0)


class ContainerDouble(torch.optim.Optimizer):
    """torchtitan's OptimizersContainer: an Optimizer that steps one for each part of the model."""

    def __init__(self, parts):
        self.optimizers = [torch.optim.AdamW(part.parameters(), lr=0.01) for part in parts]
        super().__init__([one for part in parts for one in part.parameters()], {"lr": 0.01})

    def step(self, *args, **kwargs):
        for optimizer in self.optimizers:
            optimizer.step(*args, **kwargs)


class InBackwardContainerDouble(torch.optim.Optimizer):
    """torchtitan's OptimizersInBackwardContainer: they step inside the pass, and its own step does nothing."""

    def __init__(self, parts):
        parameters = [one for part in parts for one in part.parameters()]
        optimizers = {one: torch.optim.AdamW([one], lr=0.01) for one in parameters}

        def hook(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(hook)
        super().__init__(parameters, {"lr": 0.01})

    def step(self, *args, **kwargs):
        pass


def torchtitan_double(in_backward, parts):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(parts)))
    optimizers = (InBackwardContainerDouble if in_backward else ContainerDouble)(list(model))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizers, lambda step: 1.0)
    for _ in range(5):
        optimizers.zero_grad()
        loss(model).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers.step()
        schedule.step()


@pytest.mark.parametrize("parts", [1, 3])
def test_torchtitan_whose_optimizer_holds_one_for_each_part(counted, parts):
    assert counted(torchtitan_double, False, parts).counts == (5, 5, 5 * parts, 0)


def test_torchtitan_whose_optimizers_step_inside_the_backward_pass(counted):
    page = counted(torchtitan_double, True, 2)
    assert (page.steps, page.backwards) == (5, 5)


def graph_double(replayed, marks, data):
    """CUDA graphs: three steps to warm up, then a replay runs what was captured, and no hook with it."""
    model, optimizer = new()
    for _ in range(3):
        loss(model).backward()
        optimizer.step()
    batches = DataLoader(Samples(8 * 10), batch_size=8) if data else range(10)
    for _ in batches:
        if replayed == "backward":
            optimizer.step()
        if marks:
            pymon.step()


def test_graphs_of_the_backward_pass_leave_the_optimizer_to_count(counted):
    assert counted(graph_double, "backward", False, True).counts == (13, 3, 13, 10)


def test_graphs_of_whole_steps_are_not_seen_without_marks(counted):
    """Documented: pymon.step() after each replay counts them."""
    assert counted(graph_double, "step", False, True).steps == 3
    assert counted(graph_double, "step", True, True).steps == 3 + 10

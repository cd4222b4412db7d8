"""Several optimizers, wrapped ones, those that skip, and those that do more than one update in a call."""

import contextlib

import pytest
import torch
from torch import nn

from tests.probe.loops.parts import loss, new, train


def gan(iterations, critic_steps):
    (critic, critic_optimizer), (generator, generator_optimizer) = new(), new()
    for _ in range(iterations):
        train(critic, critic_optimizer, critic_steps)
        train(generator, generator_optimizer, 1)


def test_a_critic_and_a_generator_in_turn_make_one_step(counted):
    page = counted(gan, 5, 1)
    assert page.counts == (5, 10, 10, 0)
    assert page.optimizers_seen == 2


def test_five_critic_steps_to_one_of_the_generator_are_five(counted):
    """Documented: nothing tells them apart from five iterations; pymon.step() does (test_explicit.py)."""
    assert counted(gan, 3, 5).counts == (15, 18, 18, 0)


def one_loss_two_optimizers():
    (first, first_optimizer), (second, second_optimizer) = new(), new()
    for _ in range(5):
        (loss(first) + loss(second)).backward()
        first_optimizer.step()
        second_optimizer.step()


def test_one_backward_pass_for_two_optimizers_is_one_step(counted):
    assert counted(one_loss_two_optimizers).counts == (5, 5, 10, 0)


def one_training_after_another(schedule):
    kept = []
    for _ in range(4):
        model, optimizer = new()
        if schedule:
            kept.append(
                torch.optim.lr_scheduler.StepLR(optimizer, 1)
            )  # keeps the optimizer alive, too
        train(model, optimizer, 5)


@pytest.mark.parametrize("schedule", [False, True])
def test_trainings_one_after_the_other_lose_no_step(counted, schedule):
    """As folds of a cross-validation, a search over settings, or cells of a notebook run again."""
    assert counted(one_training_after_another, schedule).counts == (20, 20, 20, 0)


def gans_one_after_another():
    kept = []
    for _ in range(3):
        pairs = [new(), new()]
        kept.append(pairs)
        for _ in range(4):
            for model, optimizer in pairs:
                train(model, optimizer, 1)


def test_gans_one_after_the_other_lose_no_step(counted):
    assert counted(gans_one_after_another).counts == (12, 24, 24, 0)


def a_second_optimizer_that_starts_late():
    (model, optimizer), (late, late_optimizer) = new(), new()
    for iteration in range(10):
        train(model, optimizer, 1)
        if iteration >= 4:
            train(late, late_optimizer, 1)


def test_a_second_optimizer_that_starts_late_makes_no_step_more(counted):
    assert counted(a_second_optimizer_that_starts_late).counts == (10, 16, 16, 0)


def a_second_optimizer_each_third_time():
    (model, optimizer), (rare, rare_optimizer) = new(), new()
    for iteration in range(9):
        train(model, optimizer, 1)
        if iteration % 3 == 2:
            train(rare, rare_optimizer, 1)


def test_a_second_optimizer_that_steps_rarely_makes_no_step_more(counted):
    assert counted(a_second_optimizer_each_third_time).counts == (9, 12, 12, 0)


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


def test_an_update_that_grad_scaler_skips_is_no_step(counted):
    assert counted(scaler_skips_two_of_five).counts == (3, 5, 3, 0)


def scaler_skips_inside_the_kernel():
    model, optimizer = new(torch.optim.Adam, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for step in range(5):
        optimizer.zero_grad()
        scaler.scale(loss(model)).backward()
        if step in (1, 3):
            model.weight.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()


def test_an_update_that_a_fused_kernel_skips_is_a_step(counted):
    """Documented: only the GPU knows; asking it would wait for it."""
    assert counted(scaler_skips_inside_the_kernel).counts == (5, 5, 5, 0)


def lbfgs():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    evaluations = 0

    def closure():
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        return value

    for _ in range(5):
        optimizer.step(closure)
    return {"evaluations": evaluations}


def test_lbfgs_makes_one_step_of_a_call_however_often_it_evaluates(counted):
    page = counted(lbfgs)
    assert page.counts == (5, page.evaluations, 5, 0)
    assert page.evaluations > 5


def of_kind(name, options):
    train(*new(getattr(torch.optim, name), **options), 5)


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"foreach": False}])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused_and_foreach_optimizers(counted, name, options):
    assert counted(of_kind, name, options).counts == (5, 5, 5, 0)


@pytest.mark.parametrize("name", ["Adafactor", "NAdam", "RMSprop", "Rprop"])
def test_other_optimizers_of_torch(counted, name):
    assert counted(of_kind, name, {}).counts == (5, 5, 5, 0)


def muon_and_adamw():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    muon = torch.optim.Muon([model[0].weight], lr=0.01)
    adamw = torch.optim.AdamW([model[0].bias, *model[1].parameters()], lr=0.01)
    for _ in range(5):
        loss(model).backward()
        muon.step()
        adamw.step()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_for_matrices_and_adamw_for_the_rest_make_one_step(counted):
    assert counted(muon_and_adamw).counts == (5, 5, 10, 0)


def super_step():
    class Twice(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    train(*new(Twice), 5)


def test_a_subclass_that_calls_its_base_counts_once(counted):
    assert counted(super_step).counts == (5, 5, 5, 0)


def wrapper():
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure=None):
            return self.inner.step(closure)

    model, optimizer = new()
    train(model, Wrapper(optimizer), 5)


def test_a_wrapper_around_an_optimizer_counts_once(counted):
    assert counted(wrapper).counts == (5, 5, 5, 0)


def scheduled():
    model, optimizer = new()
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    for _ in range(5):
        train(model, optimizer, 1)
        scheduler.step()


def test_a_learning_rate_schedule_counts_nothing_more(counted):
    assert counted(scheduled).counts == (5, 5, 5, 0)


def sharpness_aware():
    model, optimizer = new()
    for _ in range(5):
        loss(model).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=0.05)
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


def test_sharpness_aware_minimisation_is_one_step_of_two_backward_passes(counted):
    assert counted(sharpness_aware).counts == (5, 10, 5, 0)


def in_backward(layers):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    optimizers = {one: torch.optim.SGD([one], lr=0.01) for one in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(5):
        loss(model).backward()


@pytest.mark.parametrize("layers", [1, 20])
def test_optimizers_inside_the_backward_pass_make_one_step_of_it(counted, layers):
    assert counted(in_backward, layers).counts == (5, 5, 10 * layers, 0)


def one_optimizer_for_each_parameter(layers):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    optimizers = [torch.optim.SGD([one], lr=0.01) for one in model.parameters()]
    for _ in range(5):
        loss(model).backward()
        for optimizer in optimizers:
            optimizer.step()


def test_forty_optimizers_after_the_backward_pass_make_one_step(counted):
    assert counted(one_optimizer_for_each_parameter, 20).counts == (5, 5, 200, 0)


def own_update():
    model, _ = new()
    for _ in range(70):
        loss(model).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.01)
                parameter.grad = None


def test_an_update_by_hand_is_estimated_from_backward_passes(counted):
    page = counted(own_update)
    assert page.counts == (6, 70, 0, 0)
    assert all(step["estimated"] for step in page.ring)


def step_raises_once():
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
        with contextlib.suppress(ValueError):
            optimizer.step()


def test_a_call_that_raises_is_no_step(counted):
    assert counted(step_raises_once).counts == (4, 5, 4, 0)


def restored():
    from torch.distributed.checkpoint import state_dict

    model, optimizer = new(torch.optim.AdamW)
    state = state_dict.get_optimizer_state_dict(model, optimizer)  # steps once, for a state to give
    train(model, optimizer, 3)
    model, optimizer = new(torch.optim.AdamW)
    state_dict.set_optimizer_state_dict(model, optimizer, state)
    train(model, optimizer, 5)


def test_a_checkpoint_that_steps_an_optimizer_for_its_state_makes_no_step(counted):
    assert counted(restored).steps == 8


def in_turn(steps_of_each):
    pairs = [new(), new()]
    for _ in range(3):
        for model, optimizer in pairs:
            train(model, optimizer, steps_of_each)


def test_two_optimizers_with_many_steps_each_in_turn_lose_none(counted):
    """As a policy and a value function, or parts of a model frozen by epochs."""
    assert counted(in_turn, 4).counts == (24, 24, 24, 0)


def search(trainings):
    kept = []
    for _ in range(trainings):
        kept.append(new())
        train(*kept[-1], 3)


def test_a_search_that_keeps_a_hundred_optimizers_loses_no_step(counted):
    assert counted(search, 100).counts == (300, 300, 300, 0)


def ensemble(members):
    pairs = [new() for _ in range(members)]
    for _ in range(5):
        for model, optimizer in pairs:
            train(model, optimizer, 1)


def test_an_ensemble_of_fifty_is_one_step_a_round(counted):
    assert counted(ensemble, 50).counts == (5, 250, 250, 0)

"""Lightning: automatic and manual optimization, accumulation, validation, two ranks, Fabric."""

import pytest
import torch
from torch.utils.data import DataLoader

from tests.probe.loops.parts import Samples

lightning = pytest.importorskip("lightning", reason="lightning is not installed")

FORWARD, BACKWARD, OPTIMIZER = 1, 2, 3
QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def module(manual=False, skips=()):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = not manual
            self.critic = torch.nn.Linear(4, 1)
            self.generator = torch.nn.Linear(4, 1) if manual else None

        def training_step(self, inputs, number):
            if not manual:
                value = self.critic(inputs).pow(2).mean()
                return None if number in skips else value
            for part, optimizer in zip(
                (self.critic, self.generator), self.optimizers(), strict=True
            ):
                optimizer.zero_grad()
                self.manual_backward(part(inputs).pow(2).mean())
                optimizer.step()
            return None

        def validation_step(self, inputs, number):
            self.critic(inputs)

        def configure_optimizers(self):
            parts = (self.critic, self.generator) if manual else (self.critic,)
            return [torch.optim.Adam(part.parameters(), lr=0.01) for part in parts]

    return Module()


def fit(options, manual=False, skips=(), validate=False):
    trainer = lightning.Trainer(**QUIET, **options)
    loader = DataLoader(Samples(48), batch_size=8)
    trainer.fit(module(manual, skips), loader, loader if validate else None)
    return {"global_step": trainer.global_step}


def test_automatic_optimization(counted):
    """Forward and backward pass run inside the optimizer's call, as a closure."""
    page = counted(fit, {"max_epochs": 2})
    assert page.counts == (12, 12, 12, 12)
    assert page.steps == page.global_step
    assert all(page.phase_ns[phase] > 0 for phase in (FORWARD, BACKWARD, OPTIMIZER))


def test_accumulated_gradients(counted):
    page = counted(fit, {"max_epochs": 1, "accumulate_grad_batches": 4})
    assert page.counts == (2, 6, 2, 6)  # the rest of an epoch is a step, too
    assert page.steps == page.global_step


def test_validation_adds_batches_and_no_steps(counted):
    page = counted(fit, {"max_epochs": 2, "num_sanity_val_steps": 2}, False, (), True)
    assert page.counts == (12, 12, 12, 12 + 2 + 12)


def test_a_step_without_a_loss_is_one_without_a_backward_pass(counted):
    page = counted(fit, {"max_epochs": 1}, False, (1, 4))
    assert page.counts == (6, 4, 6, 6)
    assert page.steps == page.global_step


def test_manual_optimization_of_a_gan(counted):
    """Lightning's own global_step counts every optimizer call."""
    page = counted(fit, {"max_epochs": 1}, True)
    assert page.counts == (6, 12, 12, 6)
    assert page.global_step == 12


@pytest.mark.slow
def test_two_ranks_that_lightning_starts(torchrun):
    for page in torchrun(2, fit, {"max_epochs": 1, "devices": 2, "strategy": "ddp"}):
        assert page.counts == (3, 3, 3, 3)
        assert page.steps == page.global_step


def fabric():
    run = lightning.Fabric(accelerator="cpu", devices=1)
    run.launch()
    model = torch.nn.Linear(4, 1)
    model, optimizer = run.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for number, inputs in enumerate(run.setup_dataloaders(DataLoader(Samples(48), batch_size=8))):
        with run.no_backward_sync(model, enabled=number % 2 == 0):
            run.backward(model(inputs).pow(2).mean())
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()


def test_fabric(counted):
    assert counted(fabric).counts == (3, 6, 3, 6)

"""Accelerate and the Trainer of transformers, on a model of random weights made here."""

import pytest
import torch
from torch.utils.data import DataLoader

from tests.probe.loops.parts import Samples

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
FORWARD, BACKWARD, OPTIMIZER = 1, 2, 3


def accelerated(accumulate, dispatch):
    accelerator = accelerate.Accelerator(
        cpu=True,
        gradient_accumulation_steps=accumulate,
        dataloader_config=accelerate.DataLoaderConfiguration(dispatch_batches=dispatch),
    )
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    loader = DataLoader(Samples(48), batch_size=8)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for inputs in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(inputs).pow(2).mean())
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize(("accumulate", "steps"), [(1, 6), (2, 3), (4, 2)])
def test_accelerate(counted, accumulate, steps, dispatch):
    page = counted(accelerated, accumulate, dispatch)
    assert page.counts == (steps, 6, steps, 6)  # fetches one batch ahead


@pytest.mark.slow
def test_accelerate_on_two_ranks(torchrun):
    pages = torchrun(2, accelerated, 1, False)
    assert [page.counts for page in pages] == [(3, 3, 3, 3)] * 2


def language_model():
    sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 8, "n_layer": 2, "n_head": 2}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **tokens))


class Tokens(Samples):
    def __getitem__(self, index):
        tokens = torch.randint(0, 32, (8,))
        return {"input_ids": tokens, "labels": tokens}


def trained(folder, options):
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True}
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=8,
        **{"num_train_epochs": 1, **quiet, **options},
    )
    trainer = transformers.Trainer(
        language_model(), arguments, train_dataset=Tokens(48), eval_dataset=Tokens(16)
    )
    trainer.train()
    return {"global_step": trainer.state.global_step}


@pytest.mark.parametrize(
    ("options", "steps", "backwards"),
    [
        ({}, 6, 6),
        ({"num_train_epochs": 2}, 12, 12),
        ({"max_steps": 4}, 4, 4),
        ({"gradient_accumulation_steps": 2}, 3, 6),
        ({"gradient_accumulation_steps": 4}, 2, 6),
        ({"gradient_checkpointing": True}, 6, 6),
        (
            {
                "gradient_checkpointing": True,
                "gradient_checkpointing_kwargs": {"use_reentrant": True},
            },
            6,
            6,
        ),
        ({"optim": "adafactor"}, 6, 6),
        ({"dataloader_num_workers": 2}, 6, 6),
        ({"max_grad_norm": 0.1, "bf16": True}, 6, 6),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_the_trainer_of_transformers(counted, tmp_path, options, steps, backwards):
    page = counted(trained, str(tmp_path), options)
    assert (page.steps, page.backwards, page.optimizer_calls) == (steps, backwards, steps)
    assert page.steps == page.global_step
    assert all(page.phase_ns[phase] > 0 for phase in (FORWARD, BACKWARD, OPTIMIZER))


def test_evaluation_of_the_trainer_adds_batches_and_no_steps(counted, tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 3, "per_device_eval_batch_size": 8}
    page = counted(trained, str(tmp_path), options)
    assert page.counts == (6, 6, 6, 6 + 2 * 2)

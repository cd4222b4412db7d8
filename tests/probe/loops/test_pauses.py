"""Evaluations and checkpoint saves are told from training, and their time is no step's."""

import itertools
import os
import tempfile
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import pymon
from tests.probe.loops.parts import Samples, loss, new, train

MS = 1_000_000
PAUSE_S = 0.05  # of each batch of an evaluation, and of each save: long beside a step's own work


def fit(pair, batches):
    model, optimizer = pair
    for inputs in batches:
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()


def steps_are_short(page):
    """No step has the time of an evaluation or a save in it: with it, it would take the pause or longer."""
    usual = sorted(step["duration_ns"] for step in page.ring[1:])
    return usual[len(usual) // 2] < PAUSE_S * 1e9


def evaluates(batches, grad):
    """As loops do: gradients off around it all, or only around the model, as the Trainer of transformers."""
    with torch.set_grad_enabled(grad):
        for _ in batches:
            with torch.no_grad():
                time.sleep(PAUSE_S)


def evaluation_each_epoch(grad, workers, new_loaders):
    pair = new()
    loaders = [DataLoader(Samples(24), batch_size=8), DataLoader(Samples(16), batch_size=4)]
    for _ in range(3):
        if new_loaders:
            loaders = [
                DataLoader(Samples(24), batch_size=8),
                DataLoader(Samples(16), batch_size=4, num_workers=workers),
            ]
        fit(pair, loaders[0])
        evaluates(loaders[1], grad)
    fit(pair, loaders[0])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("workers", "new_loaders"), [(0, False), (0, True), (2, True)])
def test_an_evaluation_each_epoch_is_no_part_of_a_step(counted, grad, workers, new_loaders):
    page = counted(evaluation_each_epoch, grad, workers, new_loaders)
    assert page.counts == (12, 12, 12, 12 + 3 * 4)
    assert page.run["evaluations_total"] == 3
    assert page.run["evaluation_batches_total"] == 12
    assert page.evaluation_ns >= 12 * PAUSE_S * 1e9
    after = [step["step"] for step in page.ring if step["evaluation_ns"] >= 4 * PAUSE_S * 1e9]
    assert after == [4, 7, 10]  # the first steps after each
    assert [step["batches"] for step in page.ring] == [1] * 12
    assert steps_are_short(page)


def evaluation_at_the_end():
    pair, loader = new(), DataLoader(Samples(24), batch_size=8)
    fit(pair, loader)
    evaluates(DataLoader(Samples(16), batch_size=8), True)
    return {"published": page_now()["evaluation_ns_total"]}


def page_now():
    """Without publishing: what a daemon would read by now."""
    from tests.probe.loops import child

    return child.page(publish=False)


def test_an_evaluation_after_the_last_step_is_seen_at_its_end(counted):
    page = counted(evaluation_at_the_end)
    assert page.published == page.evaluation_ns >= 2 * PAUSE_S * 1e9


def part_of_a_loader(grad):
    pair, held_out = new(), DataLoader(Samples(64), batch_size=8)
    for _ in range(3):
        fit(pair, DataLoader(Samples(24), batch_size=8))
        evaluates(itertools.islice(held_out, 3), grad)
    fit(pair, DataLoader(Samples(24), batch_size=8))


def test_an_evaluation_that_stops_early_ends_with_the_next_batch_of_training(counted):
    page = counted(part_of_a_loader, False)
    assert page.run["evaluations_total"] == 3
    assert page.run["evaluation_batches_total"] == 9
    assert steps_are_short(page)


def two_loaders_of_which_one_comes_late():
    (model, optimizer), first = new(), DataLoader(Samples(80), batch_size=8)
    late = iter(DataLoader(Samples(80), batch_size=8))
    for number, inputs in enumerate(first):
        if number >= 5:
            model(next(late)).pow(2).mean().backward()
        model(inputs).pow(2).mean().backward()
        optimizer.step()


def test_a_second_loader_that_begins_to_train_is_no_evaluation(counted):
    page = counted(two_loaders_of_which_one_comes_late)
    assert page.run["evaluations_total"] == 0
    assert page.counts == (10, 15, 10, 15)


def unlabelled_beside_labelled():
    """Both batches are fetched before the backward pass of their sum."""
    (model, optimizer), labelled = new(), DataLoader(Samples(80), batch_size=8)
    unlabelled = iter(DataLoader(Samples(80), batch_size=8))
    fit((model, optimizer), itertools.islice(labelled, 3))
    for inputs in labelled:
        value = model(next(unlabelled)).pow(2).mean() + model(inputs).pow(2).mean()
        value.backward()
        optimizer.step()


def test_a_loader_beside_the_training_one_is_no_evaluation(counted):
    page = counted(unlabelled_beside_labelled)
    assert page.run["evaluations_total"] == 0
    assert [step["batches"] for step in page.ring[4:]] == [2] * 9


def frozen_model():
    """Inference that the user counts by himself is his work, and no evaluation."""
    model, _ = new()
    with torch.inference_mode():
        for inputs in DataLoader(Samples(24), batch_size=8):
            model(inputs)
            pymon.step()


def test_inference_is_no_evaluation(counted):
    page = counted(frozen_model)
    assert (page.steps, page.evaluation_ns) == (3, 0)


def marked_evaluation():
    pair = new()
    train(*pair, 3)
    with pymon.evaluation():
        time.sleep(PAUSE_S)
    train(*pair, 3)


def test_an_evaluation_without_a_loader_is_marked_by_the_user(counted):
    page = counted(marked_evaluation)
    assert page.run["evaluations_total"] == 1
    assert page.evaluation_ns >= PAUSE_S * 1e9
    assert [step["step"] for step in page.ring if step["evaluation_ns"]] == [4]
    assert steps_are_short(page)


class Slow:
    """Its pickling takes a while."""

    def __reduce__(self):
        time.sleep(PAUSE_S)
        return (Slow, ())


def saves(kind):
    pair = new()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            train(*pair, 2)
            SAVERS[kind](os.path.join(folder, str(number)))
        train(*pair, 2)


def by_torch(path):
    torch.save({"slow": Slow()}, path)


def by_dcp(path):
    from torch.distributed import checkpoint

    checkpoint.save({"slow": Slow()}, checkpoint_id=path)


def by_dcp_threads(path):
    from torch.distributed import checkpoint

    tensors = {str(number): torch.zeros(4) for number in range(6)}
    writer = checkpoint.FileSystemWriter(path, thread_count=3)
    checkpoint.save({"slow": Slow(), **tensors}, storage_writer=writer)


SAVERS = {"torch": by_torch, "dcp": by_dcp, "dcp threads": by_dcp_threads}


@pytest.mark.parametrize("kind", SAVERS)
def test_a_save_is_no_part_of_a_step(counted, kind):
    before_s = time.time()
    page = counted(saves, kind)
    assert page.counts == (8, 8, 8, 0)
    assert (page.run["saves_total"], page.run["saves_failed_total"]) == (3, 0)
    assert page.checkpoint_ns >= 3 * PAUSE_S * 1e9
    assert before_s < page.run["last_save_real_ns"] / 1e9 < time.time()
    assert page.run["last_save_ns"] >= PAUSE_S * 1e9
    assert page.run["background_save_ns_total"] == 0
    assert [step["step"] for step in page.ring if step["checkpoint_ns"]] == [3, 5, 7]
    assert steps_are_short(page)


def a_save_that_fails():
    train(*new(), 2)
    try:
        torch.save({}, "/nonexistent/folder/file")
    except (OSError, RuntimeError):
        return {"raised": True}


def test_a_save_that_fails_is_none_and_raises_as_ever(counted):
    page = counted(a_save_that_fails)
    assert page.raised
    assert (page.run["saves_total"], page.run["saves_failed_total"]) == (0, 1)
    assert page.run["last_save_real_ns"] is None


def a_save_in_another_thread():
    pair = new()
    train(*pair, 2)
    with tempfile.NamedTemporaryFile() as file:
        saving = threading.Thread(target=by_torch, args=(file.name,))
        saving.start()
        saving.join()
    train(*pair, 2)


def test_a_save_in_another_thread_takes_nothing_from_training(counted):
    page = counted(a_save_in_another_thread)
    assert page.run["saves_total"] == 1
    assert page.checkpoint_ns == 0
    assert page.run["background_save_ns_total"] >= PAUSE_S * 1e9


def an_async_save():
    from torch.distributed import checkpoint

    pair = new()
    train(*pair, 2)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.async_save({"a": torch.zeros(4)}, checkpoint_id=folder, no_dist=True).result()
    train(*pair, 2)


def test_an_async_save_counts_when_it_is_written(counted):
    page = counted(an_async_save)
    assert (page.run["saves_total"], page.run["saves_failed_total"]) == (1, 0)
    assert page.checkpoint_ns > 0  # what it takes from the training thread
    assert page.run["background_save_ns_total"] > 0


def both():
    """A save within an evaluation is a save."""
    pair, held_out = new(), DataLoader(Samples(16), batch_size=8)
    fit(pair, DataLoader(Samples(24), batch_size=8))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for number, _ in enumerate(held_out):
            by_torch(os.path.join(folder, str(number)))
    fit(pair, DataLoader(Samples(24), batch_size=8))


def test_a_save_within_an_evaluation_is_not_counted_twice(counted):
    page = counted(both)
    assert page.checkpoint_ns >= 2 * PAUSE_S * 1e9
    assert page.evaluation_ns < PAUSE_S * 1e9
    assert steps_are_short(page)


def blocked():
    pair = new()
    train(*pair, 60)
    time.sleep(
        1.0
    )  # more than five times any step's time before, on any machine that trains at all
    train(*pair, 60)


def test_a_blocked_step_is_a_stall(counted):
    page = counted(blocked)
    assert page.stall_ns >= 0.5e9
    assert page.stall_ns < page.step_ns
    assert page.usual_step_ns < 0.5e9


def shapes(kind):
    batches = {
        "tensor": DataLoader(Samples(20), batch_size=8),
        "pair": DataLoader(TensorDataset(torch.randn(20, 4), torch.zeros(20)), batch_size=8),
        "dict": DataLoader(Tokens(20), batch_size=8),
        "packed": DataLoader(Tokens(20), batch_size=8, collate_fn=packed),
        "alone": DataLoader(Samples(3), batch_size=None),
    }[kind]
    model, optimizer = new()
    for batch in batches:
        loss(model).backward()
        optimizer.step()
        del batch


class Tokens(Samples):
    def __getitem__(self, index):
        return {"labels": torch.tensor(1), "input_ids": torch.zeros(16, dtype=torch.long)}


def packed(samples):
    return {"input_ids": torch.cat([one["input_ids"] for one in samples])[None]}


@pytest.mark.parametrize(
    ("kind", "samples", "tokens"),
    [
        ("tensor", [8, 8, 4], [None] * 3),
        ("pair", [8, 8, 4], [None] * 3),
        ("dict", [8, 8, 4], [128, 128, 64]),
        ("packed", [None] * 3, [None] * 3),
        ("alone", [None] * 3, [None] * 3),
    ],
)
def test_samples_and_tokens_by_the_shape_of_the_batch(counted, kind, samples, tokens):
    page = counted(shapes, kind)
    assert [step["samples"] for step in page.ring] == samples
    assert [step["tokens"] for step in page.ring] == tokens
    assert page.samples == (sum(samples) if samples[0] else None)
    assert page.tokens == (sum(tokens) if tokens[0] else None)


def told():
    model, optimizer = new()
    pymon.model_flops(per_token=6e9)
    for inputs in DataLoader(Samples(24), batch_size=8):
        model(inputs).pow(2).mean().backward()
        optimizer.step()
        pymon.step(samples=3, tokens=1000)
    pymon.step(samples="nonsense", tokens=-1)


def test_what_the_user_says_replaces_what_the_batch_shows(counted):
    page = counted(told)
    assert [step["samples"] for step in page.ring] == [8, 3, 3, None]  # the first by its batch
    assert [step["tokens"] for step in page.ring] == [None, 1000, 1000, None]
    assert (page.samples, page.tokens) == (8 + 3 + 3, 2000)
    assert page.run["flops_per_token"] == 6_000_000_000

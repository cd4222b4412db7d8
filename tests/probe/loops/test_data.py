"""Batches: loaders with and without workers, several at once, and those that are no DataLoader."""

import queue
import threading

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.probe.loops.parts import Samples, loss, new, train

DATA_WAIT = 0
MS = 1_000_000


def fit(model, optimizer, batches):
    for inputs in batches:
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()


def without_workers(epochs):
    pair, loader = new(), DataLoader(Samples(24), batch_size=8)
    for _ in range(epochs):
        fit(*pair, loader)


def test_a_loader_without_workers(counted):
    page = counted(without_workers, 2)
    assert page.counts == (6, 6, 6, 6)
    assert page.loader_workers == 0


class WhoAmI(Samples):
    """Says what kind of process works: its page, its threads, and whether the hooks are in."""

    def __getitem__(self, index):
        import os

        from tests.probe.loops.child import page

        threads = sum(thread.name.startswith("pymon") for thread in threading.enumerate())
        return torch.tensor([os.getpid(), len(page()), threads, 0], dtype=torch.float)


def with_workers(method, workers, persistent):
    pair = new()
    options = {"multiprocessing_context": method, "persistent_workers": persistent}
    loader = DataLoader(WhoAmI(24), batch_size=8, num_workers=workers, **options)
    said = []
    for _ in range(2):
        for inputs in loader:
            said += inputs.tolist()
            fit(*pair, [torch.randn(8, 4)])
    return {"workers": said}


@pytest.mark.parametrize(
    ("method", "workers", "persistent"),
    [("fork", 2, False), ("fork", 2, True), ("spawn", 1, False), ("forkserver", 2, True)],
)
def test_workers_count_nothing_and_are_no_ranks(fresh, method, workers, persistent):
    page = fresh(with_workers, method, workers, persistent)
    assert page.counts == (6, 6, 6, 6)
    assert page.loader_workers == workers
    pids = {pid for pid, *_ in page.workers}
    assert page.pid not in pids
    assert len(pids) == workers * (1 if persistent else 2)
    assert {(size, threads) for _, size, threads, _ in page.workers} == {(0, 0)}


def zipped():
    fit_this, loaders = new(), [DataLoader(Samples(24), batch_size=8) for _ in range(2)]
    for first, second in zip(*loaders, strict=True):
        fit(*fit_this, [torch.cat([first, second])])


def test_two_loaders_side_by_side_give_two_batches_a_step(counted):
    page = counted(zipped)
    assert page.counts == (3, 3, 3, 6)
    assert [step["batches"] for step in page.ring] == [2, 2, 2]


def in_turn():
    pair = new()
    for epoch in range(4):
        fit(*pair, DataLoader(Samples(24 if epoch % 2 else 16), batch_size=8))


def test_loaders_in_turn(counted):
    assert counted(in_turn).counts == (10, 10, 10, 10)


def a_new_iterator_each_step():
    pair, loader = new(), DataLoader(Samples(24), batch_size=8)
    for _ in range(5):
        fit(*pair, [next(iter(loader))])


def test_a_new_iterator_for_each_step(counted):
    assert counted(a_new_iterator_each_step).counts == (5, 5, 5, 5)


def with_evaluation():
    pair, loader = new(), DataLoader(Samples(24), batch_size=8)
    for _ in range(2):
        fit(*pair, loader)
        with torch.no_grad():
            for inputs in DataLoader(Samples(16), batch_size=4):
                pair[0](inputs)
    fit(*pair, loader)


def test_batches_of_an_evaluation_belong_to_no_step(counted):
    page = counted(with_evaluation)
    assert page.counts == (9, 9, 9, 17)
    assert [step["batches"] for step in page.ring] == [1] * 9
    assert page.run["evaluation_batches_total"] == 8


def a_whole_group_fetched_at_once():
    (model, optimizer), loader = new(), iter(DataLoader(Samples(96), batch_size=8))
    for _ in range(3):
        for inputs in [next(loader) for _ in range(4)]:
            model(inputs).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_whole_group_of_micro_batches_fetched_at_once(counted):
    page = counted(a_whole_group_fetched_at_once)
    assert page.counts == (3, 12, 3, 12)


class Stream(IterableDataset):
    def __iter__(self):
        return (torch.randn(4) for _ in range(24))


def iterable():
    fit(*new(), DataLoader(Stream(), batch_size=8))


def test_an_iterable_dataset(counted):
    assert counted(iterable).counts == (3, 3, 3, 3)


class Nested(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return next(iter(DataLoader(TensorDataset(torch.randn(4, 4)), batch_size=4)))[0]


def loader_inside_a_dataset():
    fit(*new(), DataLoader(Nested(), batch_size=1))


def test_of_a_loader_inside_a_dataset_only_the_outer_one_counts(counted):
    assert counted(loader_inside_a_dataset).counts == (3, 3, 3, 3)


def another_thread_loads():
    ready = queue.Queue(1)

    def fill():
        for inputs in DataLoader(Samples(24, 0.002), batch_size=4):
            ready.put(inputs)
        ready.put(None)

    threading.Thread(target=fill, daemon=True).start()
    fit(*new(), iter(ready.get, None))


def test_what_another_thread_fetches_is_prefetched_and_no_data_wait(counted):
    page = counted(another_thread_loads)
    assert page.steps == 6
    assert page.phase_ns[DATA_WAIT] == 0
    assert page.batches + page.prefetches == 6
    assert page.prefetches >= 3  # those before the first backward pass belong to nobody yet


def own_generator():
    fit(*new(), (torch.randn(8, 4) for _ in range(5)))


def test_a_generator_that_is_no_loader_is_not_seen_and_that_is_said(counted):
    page = counted(own_generator)
    assert page.counts == (5, 5, 5, 0)
    assert page.loader_workers is None


class Breaks(Samples):
    def __getitem__(self, index):
        if index == 12:
            raise KeyError("the user's own")
        return super().__getitem__(index)


def dataset_raises(workers):
    pair = new()
    try:
        fit(*pair, DataLoader(Breaks(24), batch_size=8, num_workers=workers))
    except KeyError:
        train(*pair, 3)
        return {"raised": True}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_that_raises_is_none_and_reaches_the_user(counted, workers):
    page = counted(dataset_raises, workers)
    assert page.raised
    assert page.counts == (4, 4, 4, 1)


def one_batch_for_all_steps():
    model, optimizer = new()
    inputs = next(iter(DataLoader(Samples(24), batch_size=8)))
    fit(model, optimizer, [inputs] * 5)
    loss(model)


def test_one_batch_for_all_steps(counted):
    page = counted(one_batch_for_all_steps)
    assert page.counts == (5, 5, 5, 1)

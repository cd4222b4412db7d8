"""Ranks over gloo, started by torchrun or by the script itself: each has a page of its own, and all count the same."""

import os
import tempfile

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from tests.probe.loops import child
from tests.probe.loops.parts import Samples, loss, train

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no distributed")


def started(loop):
    """The loop between the start and the end of its process group."""
    dist.init_process_group("gloo", os.environ.get("RENDEZVOUS"))  # torchrun's, where none is named
    torch.set_num_threads(1)
    try:
        return loop()
    finally:
        dist.destroy_process_group()


def layers(width=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))


def ddp():
    def loop():
        data = Samples(96)
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        model = DistributedDataParallel(layers())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for inputs in loader:
                optimizer.zero_grad()
                model(inputs).pow(2).mean().backward()
                optimizer.step()

    return started(loop)


@pytest.mark.parametrize(("ranks", "steps"), [(2, 12), pytest.param(4, 6, marks=pytest.mark.slow)])
def test_ddp_under_torchrun(torchrun, ranks, steps):
    pages = torchrun(ranks, ddp)
    assert [page.counts for page in pages] == [(steps, steps, steps, steps)] * ranks
    assert [page.rank for page in pages] == [str(rank) for rank in range(ranks)]
    assert len({page.attach_id for page in pages}) == ranks  # and torchrun itself has none


def accumulation():
    model = DistributedDataParallel(layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for micro in range(8):
        if micro % 4 == 3:
            loss(model).backward()
            optimizer.step()
        else:
            with model.no_sync():
                loss(model).backward()


def uneven_inputs():
    model = DistributedDataParallel(layers())
    with model.join():
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), 3 + dist.get_rank())


def zero_redundancy():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(layers())
    train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01), 5)


def local_sgd():
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    model = DistributedDataParallel(layers())
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=2)), 5)


def fsdp():
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(layers(8), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer, 5)
    with model.no_sync():
        loss(model).backward()
    train(model, optimizer, 1)


def fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = layers(8)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer, 5)
    model.set_requires_gradient_sync(False)
    loss(model).backward()
    model.set_requires_gradient_sync(True)
    train(model, optimizer, 1)


def pipeline(schedule):
    from torch.distributed import pipelining

    model, device = nn.Linear(4, 4), torch.device("cpu")
    micro_batch = torch.zeros(2, 4, requires_grad=True)
    stage = pipelining.PipelineStage(
        model,
        dist.get_rank(),
        dist.get_world_size(),
        device,
        input_args=(micro_batch,),
        output_args=(micro_batch,),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    runs = getattr(pipelining, schedule)(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    for _ in range(5):
        optimizer.zero_grad()
        first, last = stage.is_first, stage.is_last
        runs.step(*[torch.randn(8, 4)] * first, **{"target": torch.randn(8, 4)} if last else {})
        optimizer.step()


def kinds():
    """One after the other in the same ranks, which take seconds to start; the counts of each."""

    def loop():
        said = {}
        for kind, arguments in (
            (accumulation, ()),
            (uneven_inputs, ()),
            (zero_redundancy, ()),
            (local_sgd, ()),
            (fsdp, ()),
            (fsdp2, ()),
            (pipeline, ("ScheduleGPipe",)),
            (pipeline, ("Schedule1F1B",)),
        ):
            before = child.page()
            kind(*arguments)
            dist.barrier()
            now = child.page()
            names = ("steps_total", "backwards_total")
            counts = [now[name] - before.get(name, 0) for name in names]
            said[" ".join([kind.__name__, *arguments])] = counts
        return {"kinds": said}

    return started(loop)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_kinds_of_distributed_training(torchrun, ranks):
    for rank, page in enumerate(torchrun(ranks, kinds)):
        assert page.kinds == {
            "accumulation": [2, 8],
            "uneven_inputs": [3 + rank, 3 + rank],
            "zero_redundancy": [5, 5],
            "local_sgd": [5, 5],
            "fsdp": [6, 7],
            "fsdp2": [6, 7],
            "pipeline ScheduleGPipe": [5, 20],
            "pipeline Schedule1F1B": [5, 20],
        }


def spawned_rank(rank, ranks, file):
    # A file, since a port that is free now may be another's when the ranks come to it.
    os.environ["RENDEZVOUS"] = f"file://{file}?rank={rank}&world_size={ranks}"
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    ddp()
    child.report()


def spawns(method):
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        arguments = (2, os.path.join(folder, "ranks"))
        mp.start_processes(spawned_rank, arguments, nprocs=2, start_method=method)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_that_the_script_starts_have_pages_and_the_script_has_none(launched, method):
    pages = launched(child.command(spawns, method))
    ranks = [page for page in pages if page.steps is not None]
    assert [page.counts for page in ranks] == [(12, 12, 12, 12)] * 2
    assert len(pages) == 3

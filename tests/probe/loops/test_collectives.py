"""Which rank the others wait for, told by the pages alone; and how far each group has come."""

import os
import time

import pytest
import torch
import torch.distributed as dist

SLOW_S = 0.05
STEPS_S = 6.0  # DDP's times are read once a second


def distributed_data_parallel(slow_rank):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rank, going = dist.get_rank(), torch.ones(1)
    end_s = time.monotonic() + STEPS_S
    while going.item():
        if rank == slow_rank:
            time.sleep(SLOW_S)
        optimizer.zero_grad()
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
        going = torch.tensor([float(time.monotonic() < end_s)])
        dist.broadcast(going, 0)
    dist.barrier()
    time.sleep(1.5)  # the sender looks twice a second
    return {"size": dist.get_world_size()}


@pytest.mark.parametrize(("ranks", "slow"), [(2, 1), (2, 0), (4, 2)])
def test_the_straggler_is_the_rank_that_waits_least(torchrun, ranks, slow):
    pages = torchrun(ranks, distributed_data_parallel, slow)
    means_s = [
        page.collectives["ddp_comm_ns_total"] / page.collectives["ddp_samples_total"] / 1e9
        for page in pages
    ]
    assert min(range(ranks), key=means_s.__getitem__) == slow, means_s
    others = [mean_s for rank, mean_s in enumerate(means_s) if rank != slow]
    assert min(others) >= 0.5 * SLOW_S, means_s  # they waited for it
    for page in pages:
        assert page.collectives["ddp_samples_total"] >= 2
        assert page.collectives["ddp_bytes"] == 4 * (64 * 64 + 64)


def stands_still():
    """Rank 1 leaves rank 0 alone in an all-reduce, for a while."""
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    for _ in range(3):
        dist.barrier()
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
    time.sleep(2.5)
    from tests.probe.loops.child import page

    (group,) = page()["collectives"]["groups"]
    said = {
        "sequence": group["sequence"],
        "idle_ns": time.monotonic_ns() - group["changed_mono_ns"],
    }
    if dist.get_rank() == 1:
        work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    return said


def test_of_ranks_that_stand_still_the_one_behind_shows_by_its_groups_number(torchrun):
    ahead, behind = torchrun(2, stands_still)
    assert ahead.sequence == behind.sequence + 1
    assert behind.idle_ns > 10**9


def alone():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return {"pid_of_loop": os.getpid()}


def test_without_a_group_there_is_none(counted):
    page = counted(alone)
    assert page.collectives["groups"] == []
    assert page.collectives["ddp_samples_total"] == 0

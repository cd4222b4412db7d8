"""Which rank the others wait for, told by the pages alone; and how far each group has come."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from pymon.collectors.arrivals import Arrivals, Member
from pymon.link.collectives_section import CollectivesSample, GroupSample
from pymon.link.recorder_section import RecordedGroup, RecorderSample
from tests.waiting import PATIENCE_S

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


def told_apart(slow_rank):
    """Two groups; rank `slow_rank` comes late to each."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = torch.nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.01).step()  # now it is a rank
    ranks = list(range(dist.get_world_size()))
    second = dist.new_group(ranks)
    for _ in range(COLLECTIVES):
        if dist.get_rank() == slow_rank:
            time.sleep(0.005)
        dist.all_reduce(torch.ones(100))
        dist.all_gather_into_tensor(torch.ones(4 * len(ranks)), torch.ones(4), group=second)
    return {"told": until(lambda said: said["records_total"] >= 2 * COLLECTIVES)}


COLLECTIVES = 60


def until(holds):
    """What the page says of the recorder, once it holds or the patience ends."""
    from tests.probe.loops.child import page

    end_s = time.monotonic() + PATIENCE_S
    said = page()["recorder"]
    while not holds(said) and time.monotonic() < end_s:
        time.sleep(0.1)
        said = page()["recorder"]
    dist.barrier()
    return said


def test_each_operation_of_each_group_is_counted_with_its_bytes(torchrun):
    for page in torchrun(2, told_apart, 1):
        said = page.told
        names = [group["name"] for group in said["groups"]]
        sums = {
            (names[op["group"]], op["name"]): (op["count_total"], op["bytes_total"])
            for op in said["ops"]
        }
        assert sums["0", "all_reduce"] == (COLLECTIVES, COLLECTIVES * 100 * 4)
        assert sums["1", "all_gather"] == (COLLECTIVES, COLLECTIVES * 8 * 4)
        assert (said["missed_total"], said["dropped_total"], said["reason"]) == (0, 0, "")
        assert {group["backend"] for group in said["groups"]} == {"gloo"}


@pytest.mark.parametrize(("ranks", "slow"), [(2, 0), (4, 3)])
def test_the_pages_split_the_wait_of_each_rank_in_each_group(torchrun, ranks, slow):
    pages = torchrun(ranks, told_apart, slow)
    waits = Arrivals().look(
        Member(str(rank), (0, "job", "", ranks), rank, sample(page), recorder(page))
        for rank, page in enumerate(pages)
    )
    for group in range(2):
        found = [waits[str(rank)].groups[group] for rank in range(ranks)]
        assert min(one.matched_total for one in found) >= 10
        means_s = [one.wait_s_total / one.matched_total for one in found]
        if found[0].group == "0":  # the rank that sleeps comes last to the first of the two
            assert min(range(ranks), key=means_s.__getitem__) == slow, means_s
            assert min(mean for rank, mean in enumerate(means_s) if rank != slow) > 0.002


def sample(page):
    groups = tuple(GroupSample(**group) for group in page.collectives["groups"])
    return CollectivesSample(**{**page.collectives, "groups": groups})


def recorder(page):
    told = {**page.told, "groups": tuple(RecordedGroup(**one) for one in page.told["groups"])}
    return RecorderSample(**{**told, "ops": (), "arrivals": tuple(map(tuple, told["arrivals"]))})


def hangs():
    """Rank 1 never enters the second all-reduce of the second group while rank 0 waits in it."""
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.01).step()
    second = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(5))
    dist.all_reduce(torch.ones(7), group=second)
    rank = dist.get_rank()
    work = dist.all_reduce(torch.ones(9), group=second, async_op=True) if rank == 0 else None

    def stands(said):
        groups = {group["name"]: group for group in said["groups"]}
        return "1" in groups and (groups["1"]["open_op"] is not None) == (rank == 0)

    from tests.probe.loops.child import page

    end_s = time.monotonic() + PATIENCE_S
    while not stands(said := page()["recorder"]) and time.monotonic() < end_s:
        time.sleep(0.1)
    dist.barrier()
    work = work or dist.all_reduce(torch.ones(9), group=second, async_op=True)
    work.wait()
    return {"told": said}


def test_of_a_hang_the_pages_tell_which_rank_lags_in_which_group_and_operation(torchrun):
    ahead, behind = (
        {group["name"]: group for group in page.told["groups"]} for page in torchrun(2, hangs)
    )
    assert ahead["0"]["open_op"] is behind["0"]["open_op"] is behind["1"]["open_op"] is None
    assert (ahead["1"]["open_op"], ahead["1"]["open_bytes"]) == ("all_reduce", 36)
    assert (ahead["1"]["enqueued"], ahead["1"]["completed"]) == (2, 1)
    assert (behind["1"]["enqueued"], behind["1"]["completed"]) == (1, 1)

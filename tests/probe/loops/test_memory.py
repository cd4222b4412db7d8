"""The page's section of memory, of loops that really run; CUDA's allocator is a double."""

import contextlib
import io
import json
import os
import time

import pytest
import torch

import pymon
from pymon.probe import attach
from tests.allocator_double import AllocatorDouble
from tests.probe.loops import child
from tests.waiting import until

LOOP_S = 3.3


def with_cuda(**now):
    """This process, from now on with CUDA: its allocator is the double that comes back."""
    double = AllocatorDouble(**now)
    pid = os.getpid()
    torch.cuda.is_initialized = lambda: os.getpid() == pid  # as torch: not in a fork's child
    torch.cuda.device_count = lambda: 1
    double.replace_in(torch)
    return double


def many_steps(fault):
    double = with_cuda(allocated_bytes=5, reserved_bytes=8, num_alloc_retries=3)
    double.fault = RuntimeError("planted") if fault else None
    errors, steps = io.StringIO(), 0
    began_s = time.monotonic()
    with contextlib.redirect_stderr(errors):
        while (spent_s := time.monotonic() - began_s) < LOOP_S:
            pymon.step()
            steps += 1
    return {
        "spent_s": spent_s,
        "stepped": steps,
        "reads": double.reads,
        "resets": double.resets,
        "errors": errors.getvalue(),
    }


def test_ten_thousand_steps_a_second_are_one_read_a_second(counted):
    page = counted(many_steps, False)
    assert page.steps == page.stepped > 10_000 * LOOP_S / 10
    # One more of the GPU layers' own, each ten seconds.
    assert 2 <= page.reads <= page.spent_s + 2
    assert (page.resets, page.errors) == (0, "")
    (allocator,) = page.memory["allocators"]
    assert allocator["values"]["allocated_bytes"] == 5
    assert allocator["values"]["alloc_retries_total"] == 3
    assert 1 <= allocator["step"] <= page.steps


def test_a_reader_that_fails_costs_one_line_and_training_goes_on(counted):
    page = counted(many_steps, True)
    assert page.steps == page.stepped
    assert page.memory["allocators"] == []
    (line,) = [one for one in page.errors.splitlines() if "allocator" in one]
    assert line == "pymon: the CUDA allocator is not watched: RuntimeError: planted"


def told_too_much():
    """What the section has no room for, no name for, or what is no size."""
    pymon.step()
    native = attach.native()
    for device in range(20):
        native.note_allocator(device, "u" * 100, {"allocated_bytes": device, "not_known": 1})
    native.note_allocator(3, "", {"ooms_total": 7})
    errors = []
    for values in ({"allocated_bytes": -1}, {"allocated_bytes": 2**64}, {"ooms_total": "1"}):
        try:
            native.note_allocator(5, "", values)
        except (RuntimeError, TypeError, OverflowError, ValueError) as err:
            errors.append(type(err).__name__)
    native.note_host({"rss_bytes": None, "not_known": 3})
    return {"refused": len(errors)}


def test_the_section_takes_what_it_has_room_for(counted):
    page = counted(told_too_much)
    devices = {one["device"]: one for one in page.memory["allocators"]}
    assert sorted(devices) == list(range(16))
    assert devices[3]["values"] == {"ooms_total": 7}  # the newest word of a device replaces it
    assert devices[5]["values"] == {"allocated_bytes": 5}
    assert devices[15]["uuid"] == "u" * 39
    assert page.refused == 3


def forks():
    with_cuda(allocated_bytes=5, reserved_bytes=8)
    step_until(lambda: child.page()["memory"]["allocators"])
    read, write = os.pipe()
    if os.fork() == 0:
        step_until(lambda: "rss_bytes" in child.page().get("memory", {}).get("host", {}))
        os.write(write, json.dumps(child.page()["memory"]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        return {"of_child": json.loads(answer.read())}


def step_until(condition):
    def stepped():
        pymon.step()
        return condition()

    until(stepped)


def test_a_fork_without_cuda_tells_of_its_own_memory_alone(counted):
    page = counted(forks)
    assert len(page.memory["allocators"]) == 1
    assert page.of_child["allocators"] == []
    assert page.of_child["host"]["rss_bytes"][0] > 0


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((1 << 18,), float(index))  # 1 MiB


def loader(start_method):
    batches = iter(
        torch.utils.data.DataLoader(
            Items(), 2, num_workers=2, multiprocessing_context=start_method, prefetch_factor=2
        )
    )
    held = next(batches)
    began_ns = time.monotonic_ns()
    pymon.step()

    def told():
        host = child.page()["memory"]["host"]
        # A worker has its name once it has imported torch, which a forkserver's do one by one.
        found = "workers_uss_bytes" in host and host.get("workers", [0])[0] == 2
        return found and host["workers_shm_bytes"][1] > began_ns

    until(told)
    return {"held": len(held)}


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_a_loader_s_workers_and_their_batches_are_told(counted, start_method):
    page = counted(loader, start_method)
    host = {name: value for name, (value, _) in page.memory["host"].items()}
    assert host["workers"] == 2
    assert host["shm_bytes"] >= 2 << 20  # the batch that this process holds
    assert host["workers_shm_bytes"] >= 2 << 20  # those on their way: up to 2 by 2
    assert 0 < host["workers_uss_bytes"] < host["workers_rss_bytes"]
    assert 0 < host["uss_bytes"] <= 1.5 * host["rss_bytes"]
    assert host["descriptors"] > 3
    assert host["workers_descriptors"] > 6


def test_a_process_on_the_cpu_has_no_allocator(counted):
    page = counted(plain)
    assert page.memory["allocators"] == []
    assert {"workers_uss_bytes", "rss_bytes"} <= page.memory["host"].keys()


def plain():
    pymon.step()
    step_until(lambda: "workers_uss_bytes" in child.page()["memory"]["host"])

"""Events that explain a slow step, in real trainings: each counted, timed, and told with its step."""

import gc
import io
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from tests.probe.loops.parts import loss, new


def step(model, optimizer):
    optimizer.zero_grad()
    loss(model).backward()
    optimizer.step()


def train(steps=2, between=lambda: None):
    model, optimizer = new()
    for _ in range(steps):
        step(model, optimizer)
        between()
    step(model, optimizer)


def sums(page):
    return {kind: SimpleNamespace(**one) for kind, one in page.events["sums"]}


def ring(page, kind):
    return [SimpleNamespace(**event) for event in page.event_ring if event["kind"] == kind]


# --- garbage collections


def collects():
    gc.collect()
    gc.disable()
    train(3, gc.collect)


def makes_young_garbage():
    gc.set_threshold(700, 10, 10**6)
    kept = []
    train(20, lambda: kept.extend([] for _ in range(2000)))
    return {"kept": len(kept)}


def test_each_full_collection_is_told_with_its_step_and_what_it_found(counted):
    page = counted(collects)
    told = ring(page, "gc_full")
    assert [event.step for event in told][-3:] == [2, 3, 4]
    full = sums(page)["gc_full"]
    assert full.count >= 3
    assert 0 < full.last_ns <= full.ns_max <= full.ns_total
    assert full.last_step == 4
    assert (told[-1].begin_mono_ns, told[-1].duration_ns) == (full.last_begin_mono_ns, full.last_ns)


def test_young_collections_are_summed_and_leave_the_ring_alone(counted):
    page = counted(makes_young_garbage)
    young = sums(page)["gc_young"]
    assert young.count >= 20
    assert young.ns_total > 0
    assert ring(page, "gc_young") == []


def raises_in_a_collection():
    class Cycle:
        def __del__(self):
            raise ValueError("not of ours")

    def garbage():
        one = Cycle()
        one.itself = one
        del one
        sys.unraisablehook = lambda _: None
        gc.collect()

    train(2, garbage)


def test_an_exception_within_a_collection_stays_where_it_was(counted):
    assert sums(counted(raises_in_a_collection))["gc_full"].count >= 2


# --- checkpoints


def saves(how):
    target = torch.zeros(1000)
    between = {
        "torch": lambda: torch.save({"weight": target}, io.BytesIO()),
        "fails": lambda: _fails(lambda: torch.save({}, "/nonexistent/there")),
        "in a thread": lambda: _in_a_thread(lambda: torch.save(target, io.BytesIO())),
    }[how]
    train(2, between)


def _fails(save):
    with pytest.raises(RuntimeError, match="nonexistent"):
        save()


def _in_a_thread(save):
    thread = threading.Thread(target=save)
    thread.start()
    thread.join()


def saves_distributed(folder, how):
    import torch.distributed.checkpoint as dcp

    state = {"weight": torch.zeros(1000), "other": torch.ones(1000)}
    count = iter(range(9))

    def save():
        # Two writers: each saves its tensor by torch.save, in a thread of its own.
        where = f"{folder}/{next(count)}"
        writer = dcp.FileSystemWriter(where, single_file_per_rank=False, thread_count=2)
        if how == "blocks":
            dcp.save(state, storage_writer=writer)
        else:
            dcp.async_save(state, storage_writer=writer).result()

    train(2, save)


@pytest.mark.parametrize(("how", "kind"), [("torch", "checkpoint_save"), ("fails", "checkpoint_save"),
                                           ("in a thread", "checkpoint_background")])  # fmt: skip
def test_each_save_is_one(counted, how, kind):
    page = counted(saves, how)
    assert [event.step for event in ring(page, kind)] == [2, 3]
    assert sums(page)[kind].count == 2
    assert sums(page)[kind].ns_total > 0
    assert {"checkpoint_save", "checkpoint_background"} & set(sums(page)) == {kind}


def test_a_distributed_checkpoint_is_one_save_however_many_tensors_it_has(counted, tmp_path):
    page = counted(saves_distributed, str(tmp_path), "blocks")
    assert sums(page)["checkpoint_save"].count == 2
    assert "checkpoint_background" not in sums(page)


def test_an_asynchronous_checkpoint_blocks_for_a_while_and_goes_on_in_the_background(
    fresh, tmp_path
):
    page = fresh(saves_distributed, str(tmp_path), "does not block")
    assert sums(page)["checkpoint_save"].count == 2
    assert sums(page)["checkpoint_background"].count == 2


def saves_pickled():
    import inspect
    import pickle

    train()
    copy = pickle.loads(pickle.dumps(torch.save))
    return {
        "same": copy is torch.save is torch.serialization.save,
        "is_function": inspect.isfunction(torch.save),
        "parameters": list(inspect.signature(torch.save).parameters)[:2],
    }


def test_the_wrapped_function_looks_as_it_did(counted):
    page = counted(saves_pickled)
    assert (page.same, page.is_function, page.parameters) == (True, True, ["obj", "f"])


# --- compilations


def compiles():
    model, optimizer = new()
    compiled = torch.compile(model, backend="eager", dynamic=False)

    def run(size):
        optimizer.zero_grad()
        compiled(torch.randn(size, 4)).pow(2).mean().backward()
        optimizer.step()

    for size in (8, 8, 16, 8):
        run(size)


def breaks_graphs():
    @torch.compile(backend="eager")
    def breaks(value):
        value = value + 1
        torch._dynamo.graph_break()
        return value * 2

    train(2, lambda: breaks(torch.ones(2)))


def resets():
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    torch._dynamo.reset()
    train()
    _until(_registered, 30)
    torch.compile(lambda x: x + 2, backend="eager")(torch.ones(1))


def _registered():
    return torch._dynamo.callback.callback_handler.start_callbacks != []


def _until(there, seconds):
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def saves_within_a_compiled_function():
    @torch.compile(backend="eager")
    def saves(value):
        value = value + 1
        torch.save(value, io.BytesIO())
        return value * 2

    train(2, lambda: saves(torch.ones(2)))
    return {"value": saves(torch.ones(2)).tolist()}


def test_compilations_are_told_from_recompilations(fresh):
    page = fresh(compiles)
    assert [event.step for event in ring(page, "compile")] == [1]
    assert [event.step for event in ring(page, "recompile")] == [3]
    assert sums(page)["recompile"].last_ns > 0
    assert {"compile", "recompile", "graph_break"} <= set(page.events["watched"])


def test_graph_breaks_are_counted(fresh):
    page = fresh(breaks_graphs)
    assert sums(page)["graph_break"].count == 1
    assert sums(page)["compile"].count == 2  # what precedes the break, and what follows it


def test_callbacks_come_back_after_a_reset(fresh):
    assert sums(fresh(resets))["compile"].count == 2


def test_saving_within_a_compiled_function_goes_on(fresh):
    page = fresh(saves_within_a_compiled_function)
    assert page.value == [4.0, 4.0]
    assert sums(page)["checkpoint_save"].count >= 3


def never_compiles():
    train()
    return {"loaded": "torch.distributed.checkpoint" in sys.modules}


def test_nothing_is_imported_for_it(fresh):
    assert not fresh(never_compiles).loaded


# --- what needs a GPU: doubles of torch's own functions


def test_without_cuda_its_events_are_absent_and_it_says_why(counted):
    if hasattr(torch._C, "_cuda_emptyCache"):
        pytest.skip("this torch has CUDA")
    page = counted(train)
    assert "cache_flush" not in page.events["watched"]
    assert "graph_capture" not in page.events["watched"]
    assert "without CUDA" in page.events["unseen"]
    assert page.events["cudnn_benchmark"] is None

"""Saves of frameworks are wrapped as soon as they are imported, and behave as ever."""

import sys
import threading
from concurrent.futures import Future

import pytest

from pymon.probe import checkpoints
from tests.waiting import PATIENCE_S


class NativeDouble:
    """Notes what it is told."""

    def __init__(self, training=0):
        self.told, self._training = [], training

    def training_tid(self):
        return self._training

    def save_begin(self):
        self.told.append("begin")

    def save_end(self, outcome):
        self.told.append(outcome)


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """A double of safetensors, of which nothing is imported yet."""
    package = tmp_path / "safetensors"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "torch.py").write_text("def save_file(path):\n    return open(path)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders = list(sys.meta_path)
    before = set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_framework_that_is_imported_later_is_watched(framework, monkeypatch):
    monkeypatch.setattr(
        checkpoints, "SAVERS", (("safetensors.torch", "save_file"), ("absent_one", "save"))
    )
    native = NativeDouble()
    told = []
    checkpoints.install(native, lambda *times: told.append(times))
    from safetensors.torch import save_file

    save_file("/dev/null").close()
    with pytest.raises(FileNotFoundError):
        save_file("/nonexistent/file")
    begin = ["begin", checkpoints.SUCCEEDED, "begin", checkpoints.FAILED]
    assert native.told == begin
    assert save_file.__name__ == "save_file"
    assert len(told) == 2
    assert all(begin_ns <= end_ns for begin_ns, end_ns in told)


def test_the_listener_hears_of_the_outermost_save_and_its_failure_is_nobodys():
    native, told = NativeDouble(), []

    def listener(begin_ns, end_ns):
        told.append((begin_ns, end_ns))
        raise RuntimeError("listener")

    inner = checkpoints.timed_save(native, lambda: 5, listener)
    outer = checkpoints.timed_save(native, lambda: inner() + inner(), listener)
    assert outer() == 10
    assert len(told) == 1
    assert inner() == 5
    assert len(told) == 2


def test_a_name_that_a_framework_lacks_breaks_no_import(framework, monkeypatch, capsys):
    monkeypatch.setattr(checkpoints, "SAVERS", (("safetensors.torch", "Trainer.save"),))
    checkpoints.install(NativeDouble(), print)
    import safetensors.torch

    assert callable(safetensors.torch.save_file)
    assert "does not watch safetensors.torch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(None, checkpoints.SUCCEEDED), (OSError("disk full"), checkpoints.FAILED)],
)
def test_a_save_in_another_process_counts_when_it_is_done(error, outcome):
    native, future = NativeDouble(), Future()
    save = checkpoints.timed_save(
        native, lambda **_: future, print, distributed=True, starts_only=True
    )
    save(async_checkpointer_type="AsyncCheckpointerType.PROCESS")
    assert native.told == ["begin", checkpoints.GOES_ON]
    future.set_exception(error) if error else future.set_result(None)
    assert native.told[2:] == ["begin", outcome]


@pytest.mark.parametrize("trains", ["a thread", "the main thread", "nobody yet"])
def test_while_a_distributed_checkpoint_is_written_the_training_thread_saves_for_itself(trains):
    native = NativeDouble()
    save = checkpoints.timed_save(native, lambda: None, lambda *_: None)
    inside, enough = threading.Event(), threading.Event()

    def write():
        inside.set()
        enough.wait(PATIENCE_S)

    writer = threading.Thread(
        target=checkpoints.timed_save(native, write, lambda *_: None, distributed=True)
    )

    def in_a_thread():
        if trains == "a thread":
            native._training = threading.get_native_id()
        save()

    other = threading.Thread(target=in_a_thread)
    if trains == "the main thread":
        native._training = threading.get_native_id()
    writer.start()
    assert inside.wait(PATIENCE_S)
    other.start()
    other.join()
    by_other = native.told.count("begin") - 1
    save()
    by_main = native.told.count("begin") - 1 - by_other
    enough.set()
    writer.join()
    assert (by_other, by_main) == ((1, 0) if trains == "a thread" else (0, 1))

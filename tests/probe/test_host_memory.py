"""How often what is read, and that what cannot be read is absent."""

import os
import subprocess
import sys

import pytest

from pymon.probe import host_memory
from pymon.probe.host_memory import HostMemory
from tests.waiting import until


class NativeDouble:
    def __init__(self):
        self.noted = []

    def note_host(self, values):
        self.noted.append(values)

    def times(self, name):
        return sum(name in values for values in self.noted)

    @property
    def host(self):
        return {name: value for values in self.noted for name, value in values.items()}


class ClockDouble:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def polled(seconds, ticks_per_s=2, clock=None):
    native, clock = NativeDouble(), clock or ClockDouble()
    memory = HostMemory(native, clock)
    for _ in range(seconds * ticks_per_s):
        memory.poll()
        clock.now_s += 1 / ticks_per_s
    return native


def test_cheap_figures_come_each_second_and_unique_memory_each_minute():
    native = polled(120)
    assert native.times("rss_bytes") == 120
    assert native.times("descriptors") == 12
    assert native.times("uss_bytes") == 2


def test_what_takes_long_comes_the_more_seldom(monkeypatch):
    clock = ClockDouble()

    def slow(pid):
        clock.now_s += 1.0  # as smaps of a process of a hundred gigabytes
        return 1

    monkeypatch.setattr(host_memory, "_uss_bytes", slow)
    native = polled(900, clock=clock)
    assert native.times("uss_bytes") == 1
    assert native.times("rss_bytes") >= 899


def test_what_fails_is_not_tried_again_at_once(monkeypatch):
    tries = []

    def broken(pid):
        tries.append(pid)
        raise OSError("planted")

    monkeypatch.setattr(host_memory, "_uss_bytes", broken)
    memory = HostMemory(NativeDouble(), ClockDouble())
    for _ in range(5):
        try:
            memory.poll()
        except OSError:
            continue
    assert tries == ["self"]


def test_own_figures_are_those_of_the_kernel():
    host = polled(1).host
    assert 1 << 20 < host["rss_bytes"] < 1 << 40
    assert 0 < host["uss_bytes"] < 1 << 40
    assert host["descriptors"] == pytest.approx(len(os.listdir("/proc/self/fd")), abs=3)
    assert (host["workers"], host["workers_rss_bytes"], host["workers_uss_bytes"]) == (0, 0, 0)


def test_what_another_user_may_not_read_is_absent(monkeypatch):
    def refused(pid, name):
        raise PermissionError

    monkeypatch.setattr(host_memory, "_read", refused)
    assert host_memory._uss_bytes("self") is None
    assert host_memory._shm_files("self") is None
    assert host_memory._bytes_beside({}, [{1: 2}, None]) is None


def test_shared_memory_is_counted_once_by_file():
    assert host_memory._bytes_beside({1: 5}, [{1: 5, 2: 7}, {2: 7, 3: 1}]) == 8


MAPS = b"""\
7f0000000000-7f0000100000 rw-s 00000000 00:1a 77  /dev/shm/torch_1_2_3 (deleted)
7f0000200000-7f0000300000 rw-p 00000000 00:00 0
7f0000400000-7f0000600000 rw-s 00000000 00:1a 78  /dev/shm/nccl-x
7f0000600000-7f0000700000 rw-s 00000000 00:1a 78  /dev/shm/nccl-x
"""


def test_mappings_are_found_by_their_path():
    assert host_memory._mapped_shm(MAPS) == {77: 1 << 20, 78: 2 << 20}
    assert host_memory._mapped_shm(b"") == {}


HOLDER = """
import mmap, os, sys
from multiprocessing import shared_memory
one = shared_memory.SharedMemory(create=True, size=1 << 20)
one.buf[:] = bytes(1 << 20)
one.unlink()
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_file_that_has_no_name_any_more_is_still_held():
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        files = until(lambda: host_memory._shm_files(str(process.pid)))
        assert sum(files.values()) == 1 << 20
    finally:
        process.communicate("")


def test_those_that_ended_are_left_out():
    assert host_memory._each(host_memory._rss_bytes, ["self", "999999999"])[1:] == []

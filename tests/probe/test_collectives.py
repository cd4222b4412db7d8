"""Groups that cannot tell how far they are leave no hole behind."""

import sys
from types import SimpleNamespace

from pymon.probe.collectives import Collectives


class GroupDouble:
    def __init__(self, name, sequence):
        self.group_name, self._sequence = name, sequence

    def size(self):
        return 2

    def rank(self):
        return 1

    def _get_sequence_number_for_group(self):
        if self._sequence is None:
            raise RuntimeError("this backend has no sequence numbers")
        return self._sequence


class NativeDouble:
    def __init__(self):
        self.told, self.groups = {}, None

    def note_group(self, slot, name, size, rank, sequence, now_mono_ns):
        self.told[slot] = (name, size, rank, sequence)

    def set_recorder_reason(self, reason):
        self.reason = reason

    def publish_recorder(self, cpu_ns, now_mono_ns):
        pass

    def publish_groups(self, groups):
        self.groups = groups


def test_a_group_without_a_sequence_number_takes_no_slot(monkeypatch):
    groups = [GroupDouble("mpi", None), GroupDouble("0", 7), GroupDouble("gone", None)]
    c10d = SimpleNamespace(
        is_initialized=lambda: True,
        _world=SimpleNamespace(pg_map=dict.fromkeys(groups, ("mpi", None))),
    )
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", c10d)
    native = NativeDouble()
    Collectives(native).poll()
    assert native.told == {0: ("0", 2, 1, 7)}
    assert native.groups == 1
    assert native.reason.startswith("mpi: ")


def test_a_user_may_name_every_argument_of_ddp(monkeypatch):
    """Lightning says `DistributedDataParallel(module=...)`: no name of ours may be in the way."""

    class Ddp:
        device_type = "cpu"

        def __init__(self, module, native=None, built=None):
            self.given = module, native, built

        def _set_ddp_runtime_logging_sample_rate(self, rate):
            self.rate = rate

    torch = SimpleNamespace(
        distributed=SimpleNamespace(is_available=lambda: True),
        nn=SimpleNamespace(parallel=SimpleNamespace(DistributedDataParallel=Ddp)),
    )
    native = NativeDouble()
    native.set_second_callback = lambda look: None
    Collectives(native).install(torch)
    made = Ddp(module=1, native=2, built=3)
    assert (made.given, made.rate) == ((1, 2, 3), 1)

"""Collectives, with no hook in their way: each group's sequence number, and what DDP's own logger has timed.

DDP's reducer calls its collectives in C++, where nothing in Python sees them; its logger times them on the iterations
that it samples. A rank that arrives last finds the others there and communicates for the shortest time.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from typing import Any

from pymon.probe.recorder import Recorder

_EACH_ITERATION = 1


class Collectives:
    """One per process. `native` is `pymon.native._probe`."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._recorder = Recorder(native)
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()
        self._begins: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def install(self, torch: Any) -> None:
        """Right after torch has been imported."""
        if not torch.distributed.is_available():
            return
        ddp = torch.nn.parallel.DistributedDataParallel
        original = ddp.__init__

        @functools.wraps(original)
        def init(built: Any, /, *args: Any, **kwargs: Any) -> None:  # users say `module=...`
            original(built, *args, **kwargs)
            with contextlib.suppress(Exception):  # the border to somebody's training
                self._modules.add(built)
                # On the CPU timing is two looks at a clock. On a GPU the logger waits for its events: torch's own rate
                # (each hundredth iteration) stays.
                if built.device_type == "cpu":
                    built._set_ddp_runtime_logging_sample_rate(_EACH_ITERATION)

        ddp.__init__ = init

    def look(self) -> None:
        """Training thread, after a step, once a second: DDP's reducer holds a lock within a backward pass."""
        with contextlib.suppress(Exception):
            for module in list(self._modules):
                self._look_at(module)

    def _look_at(self, module: Any) -> None:
        data = module._get_ddp_logging_data()
        begin_ns = int(data.get("backward_comm_time_start", 0))
        comm_ns = int(data.get("backward_comm_time", 0))
        if comm_ns <= 0 or begin_ns == self._begins.get(module):
            return  # nothing timed since the last look
        self._begins[module] = begin_ns
        overlap_ns = max(0, int(data.get("backward_compute_comm_overlap_time", 0)))
        self._native.note_ddp(
            int(data.get("iteration", 0)),
            begin_ns,
            comm_ns,
            overlap_ns,
            int(data.get("total_parameter_size_bytes", 0)),
        )

    def poll(self) -> None:
        """Sender thread, each tick: a rank that hangs still tells where."""
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        if c10d is None or not c10d.is_initialized():
            return
        now_ns, slot, begun = time.monotonic_ns(), 0, 0
        backends: set[str] = set()
        for group, (backend, _) in list(c10d._world.pg_map.items()):
            # A backend without sequence numbers, or a group that is going, takes no slot: it is absent, not at 0.
            with contextlib.suppress(Exception):
                sequence = group._get_sequence_number_for_group()
                name, size, rank = str(group.group_name), group.size(), group.rank()
                self._native.note_group(slot, name, size, rank, sequence, now_ns)
                slot, begun = slot + 1, begun + sequence
                backends |= {part.rpartition(":")[2] for part in backend.split(",")}
        self._native.publish_groups(slot)
        self._recorder.poll(begun, frozenset(backends))

"""What the daemon asks the NVML worker and what it answers: one message a datagram of a SOCK_SEQPACKET pair."""

from __future__ import annotations

import msgspec

from pymon.model.gpu import FastReadings, GpuIdentity, GpuState, SlowReadings

MAX_MESSAGE_BYTES = 1024 * 1024  # of the worker: 500 processes take 20 KB
MAX_ORDER_BYTES = 4096  # to the worker: the indices of 16 GPUs at most


class Sweep(msgspec.Struct, frozen=True, tag="sweep"):
    """Read everything once. `skip`: indices whose calls hang. `slow_s`: how often the slow readings are due."""

    skip: tuple[int, ...] = ()
    events: bool = True
    per_link: bool = False
    process_utilization: bool = False
    slow_s: float = 10.0


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The library is up."""

    driver_version: str
    nvml_version: str
    cuda_version: str
    double: bool
    gpu_count: int


class Away(msgspec.Struct, frozen=True, tag="away"):
    """The library does not come up, or has lost its driver; the worker ends after this."""

    function: str
    code: int
    text: str


class GpuRead(msgspec.Struct, frozen=True):
    """One GPU. `uuid` and `identity` are of the last time it answered; `slow` is None where it was not due."""

    index: int
    uuid: str
    state: GpuState
    reason: str
    identity: GpuIdentity | None
    fast: FastReadings | None
    slow: SlowReadings | None
    invalid: tuple[str, ...] = ()  # a reason for each reading dropped


class Reads(msgspec.Struct, frozen=True, tag="gpus"):
    """Several at once: a message costs more than most of what is in it."""

    gpus: tuple[GpuRead, ...]


class Xid(msgspec.Struct, frozen=True):
    """A driver error that an event told of."""

    uuid: str
    xid: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The end of a sweep, with what has come up since the one before."""

    xids: tuple[Xid, ...]
    watches_xids: bool
    spent_ns: int
    calls: int
    errors: tuple[tuple[str, int, int], ...]  # function, code, count


Message = Ready | Away | Reads | Done

encode = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(Sweep).decode
decode = msgspec.msgpack.Decoder(Message).decode

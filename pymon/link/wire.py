"""Messages on the agent socket: one JSON object per SOCK_SEQPACKET datagram, `type` names it.

A probe opens with `hello` (the page's memfd rides along as SCM_RIGHTS) and is answered `welcome` or `reject`;
then the daemon may send `capture` or `counters`, and each order ends in a `receipt`.
A command opens with `request` and is answered by any number of `reply`, the last of which has `last` set.
Unknown fields are ignored and missing ones take their default, so that neighbours in version understand each other.
Standard library only: the probe loads this into a training process.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

VERSION = 1
MAX_MESSAGE_BYTES = 64 * 1024  # far above any message; a bound against a hostile peer
MAX_TEXT = 1024  # one string field; longer ones are cut when a message is read


class WireError(ValueError):
    """The datagram is no message of ours; the text says why."""


@dataclass(frozen=True)
class Hello:
    """A probe introduces itself; empty or None means unknown."""

    attach_id: str
    pid: int
    version: int = VERSION
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    job_id: str = ""
    run_id: str = ""
    script: str = ""
    python: str = ""
    torch: str = ""
    attached_real_ns: int = 0


@dataclass(frozen=True)
class Welcome:
    """The daemon took the page. Comes again when one of these changes."""

    version: int = VERSION
    armed: bool = True  # False: `pymon disarm`
    budget_ratio: float = 0.0  # of step time, that the probe may cost; 0: its own default


@dataclass(frozen=True)
class Reject:
    """The daemon did not; the probe goes on writing, and asks again only after a while."""

    reason: str = ""


@dataclass(frozen=True)
class CaptureOrder:
    """Run torch.profiler for `steps` steps from step `first_step` on (0: the next boundary)."""

    capture_id: str
    spool: str  # an existing folder in which the probe makes `<capture_id>-<attach_id>/` and writes there only
    first_step: int = 0
    steps: int = 3
    max_s: float = 30.0
    max_events: int = 50_000
    min_free_bytes: int = 256 * 1024 * 1024  # disk and memory that must stay free
    with_stack: bool = False


@dataclass(frozen=True)
class CountersOrder:
    """Sample the hardware counters of the process's GPU for `seconds`.

    A type of its own, not a kind of `capture`: a probe that does not know it must not run its profiler instead.
    """

    capture_id: str
    spool: str
    seconds: float = 2.0
    min_free_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True)
class Receipt:
    """How an order ended: `written`, `refused`, `failed` or `missed`, with the files' names in the spool folder."""

    capture_id: str
    status: str
    reason: str = ""
    folder: str = ""  # name of the folder below the spool
    files: list[str] = field(default_factory=list)
    first_step: int = 0
    steps: int = 0
    took_s: float = 0.0


@dataclass(frozen=True)
class Request:
    """A command's wish.

    `capture`, `counters` (a burst of `for_s`), `status`, `summary` (of `run_id`), `release` (the driver, for `for_s`),
    `blackbox` (of `pids`; without one a list), `disarm` and `arm` (of `job`, else of all), `ended` (the parent of
    `pids` tells their `wait_status`), or `hold`: stay alive while I am connected.
    """

    command: str
    pids: list[int] = field(default_factory=list)  # empty: all
    steps: int = 3
    run_id: str = ""
    timeout_s: float = 120.0
    for_s: float = 0.0
    job: str = ""
    wait_status: int = 0


@dataclass(frozen=True)
class Reply:
    """An answer: progress lines in `text`, data in `body`; `ok` False is a refusal with its reason in `text`."""

    ok: bool = True
    last: bool = False
    text: str = ""
    body: dict[str, Any] = field(default_factory=dict)


Message = Hello | Welcome | Reject | CaptureOrder | CountersOrder | Receipt | Request | Reply
_TYPES: dict[str, type[Any]] = {
    "hello": Hello,
    "welcome": Welcome,
    "reject": Reject,
    "capture": CaptureOrder,
    "counters": CountersOrder,
    "receipt": Receipt,
    "request": Request,
    "reply": Reply,
}
_NAMES = {cls: name for name, cls in _TYPES.items()}
MessageT = TypeVar("MessageT")


def encode(message: Message) -> bytes:
    """One datagram; raises WireError where it would be larger than `MAX_MESSAGE_BYTES`."""
    data = json.dumps({"type": _NAMES[type(message)], **dataclasses.asdict(message)}).encode()
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(f"message of {len(data)} bytes, {MAX_MESSAGE_BYTES} at most")
    return data


def decode(data: bytes) -> Message:
    """The message in one datagram; raises WireError on anything else, and never another exception."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError("datagram too large")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise WireError(f"not JSON: {err}") from None
    if not isinstance(fields, dict) or fields.get("type") not in _TYPES:
        raise WireError("no message type known here")
    cls = _TYPES[fields["type"]]
    values = {}
    for known in dataclasses.fields(cls):
        if known.name in fields:
            values[known.name] = _checked(known.name, str(known.type), fields[known.name])
        elif known.default is dataclasses.MISSING and known.default_factory is dataclasses.MISSING:
            raise WireError(f"{fields['type']}: {known.name} is missing")
    message: Message = cls(**values)
    return message


def _checked(name: str, annotation: str, value: Any) -> Any:
    """The value, if it has the field's type; JSON's own types are all that the messages use."""
    expected: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "int": (int,),
        "int | None": (int, type(None)),
        "float": (int, float),
        "bool": (bool,),
        "list[str]": (list,),
        "list[int]": (list,),
        "dict[str, Any]": (dict,),
    }
    kinds = expected[annotation]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise WireError(f"{name}: {type(value).__name__} instead of {annotation}")
    if annotation.startswith("list[") and isinstance(value, list):
        item = str if annotation == "list[str]" else int
        if not all(isinstance(one, item) and not isinstance(one, bool) for one in value):
            raise WireError(f"{name}: not {annotation}")
    return value[:MAX_TEXT] if isinstance(value, str) and name != "text" else value

"""Kineto's on-demand socket, from the daemon's side: PyTorch processes with KINETO_USE_DAEMON ask here for orders.

The protocol is Kineto's own (libkineto's ipcfabric): connectionless datagrams, 40 bytes of head (u64 size, char[32]
type), then the body. A process asks (`req`) every five seconds and takes an answer that comes within 90 ms; the answer
is a configuration text, or nothing. A text that Kineto cannot parse may crash the process at its exit, so texts come
from `config_text` alone. What is heard here can be sent by any local user, so only the kernel's word (SCM_CREDENTIALS)
says who asks.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from pymon.base.errors import SourceAbsent

ENDPOINT = "dynolog"  # hard-coded in Kineto
SOCKET_DIR_ENV = (
    "KINETO_IPC_SOCKET_DIR"  # Kineto's own variable: a folder instead of the abstract namespace
)
POLL_S = 5.0  # how often a process asks
FORGET_S = 30.0  # after six questions left out it is gone
# An order given while torch is still being imported ends in an empty trace; two polls later it is not.
POLLS_BEFORE_ORDER = 2
_HEAD = struct.Struct("<Q32s")
_REQUEST = struct.Struct("<iiq")  # type mask, number of pids, job id
_CREDENTIALS = struct.Struct("3i")
_ACTIVITIES = 2  # in the mask: ready for an order; clear while a profiler runs
_MAX_DATAGRAM_BYTES = 4096  # a question has 56 bytes and 4 for each of at most 11 pids
_MAX_PROCESSES = 1024
_SAFE_PATH = re.compile(r"/[A-Za-z0-9_./-]{1,240}\Z")


@dataclass(frozen=True, slots=True)
class KinetoProcess:
    """A process that asks; pid and uid by the kernel."""

    pid: int
    uid: int
    ready: bool  # False while some profiler runs in it, or right after its first question
    last_seen_mono_s: float


@dataclass(slots=True)
class _Client:
    pid: int
    uid: int
    polls: int = 0
    ready: bool = False
    seen_s: float = 0.0
    order: str = ""
    handing: bool = False  # the answer that is being sent carries the order
    delivered: bool = False


def config_text(path: Path, duration_ms: int) -> str:
    """An order for one trace of so many milliseconds, from as soon as possible.

    Kineto puts `_<pid>` before the suffix. Raises ValueError for what Kineto might not parse.
    """
    if not _SAFE_PATH.match(str(path)) or path.suffix != ".json":
        raise ValueError(f"{path}: not a path that Kineto is given")
    if not 1 <= duration_ms <= 600_000:
        raise ValueError(f"{duration_ms} ms: not a duration that Kineto is given")
    lines = {
        "ACTIVITIES_LOG_FILE": str(path),
        "PROFILE_START_TIME": "0",
        "ACTIVITIES_WARMUP_PERIOD_SECS": "0",
        "ACTIVITIES_DURATION_MSECS": str(duration_ms),
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


class KinetoSocket:
    """Answers on a thread of its own, so that nothing the daemon does makes a process wait."""

    def __init__(self, socket_dir: str | None = None) -> None:
        self._socket_dir = (
            socket_dir if socket_dir is not None else os.environ.get(SOCKET_DIR_ENV, "")
        )
        self._clients: dict[int, _Client] = {}
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._path: Path | None = None
        self._stopping = False

    def start(self) -> None:
        """Binds and answers from now on. Raises SourceAbsent where the endpoint cannot be had."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            if self._socket_dir:
                self._path = Path(self._socket_dir, ENDPOINT)
                _remove_dead(self._path)
                sock.bind(str(self._path))
                _let_all_send(self._path)
            else:
                sock.bind(f"\0{ENDPOINT}\0")  # the closing zero is part of the name
        except OSError as err:
            sock.close()
            self._path = None
            raise SourceAbsent(
                f"Kineto's endpoint {ENDPOINT!r} cannot be had ({err.strerror or err}); "
                "is dynolog, or another pymon, running?"
            ) from None
        sock.settimeout(0.5)
        self._socket = sock
        threading.Thread(target=self._answer, name="pymon-kineto", daemon=True).start()

    def stop(self) -> None:
        """Answers no more. Processes that still ask will delay their own exit (Kineto waits for an answer)."""
        self._stopping = True
        if self._socket is not None:
            self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def processes(self) -> tuple[KinetoProcess, ...]:
        """Those that asked lately."""
        now_s = time.monotonic()
        with self._lock:
            self._forget(now_s)
            return tuple(
                KinetoProcess(
                    client.pid,
                    client.uid,
                    client.ready and client.polls > POLLS_BEFORE_ORDER,
                    client.seen_s,
                )
                for client in self._clients.values()
            )

    def request(self, pid: int, config: str) -> bool:
        """Leaves an order (of `config_text`) for the next question; False where the process is unknown."""
        with self._lock:
            client = self._clients.get(pid)
            if client is None:
                return False
            client.order, client.delivered = config, False
            return True

    def delivered(self, pid: int) -> bool:
        """Whether the last order was handed over."""
        with self._lock:
            client = self._clients.get(pid)
            return client is not None and client.delivered

    def withdraw(self, pid: int) -> None:
        """Takes an order back that was not asked for yet."""
        with self._lock:
            if client := self._clients.get(pid):
                client.order = ""

    def _answer(self) -> None:
        space = socket.CMSG_SPACE(_CREDENTIALS.size)
        while not self._stopping and (sock := self._socket) is not None:
            try:
                data, ancillary, _, sender = sock.recvmsg(_MAX_DATAGRAM_BYTES, space)
            except TimeoutError:
                continue
            except OSError:
                return  # closed
            who = _credentials(ancillary)
            reply = self._reply(data, who)
            if reply is None or who is None:
                continue
            try:
                sock.sendto(reply, socket.MSG_DONTWAIT, sender)
            except (OSError, TypeError):  # it ended, does not read, or has no address
                self._not_taken(who[0])
            else:
                self._taken(who[0])

    def _reply(self, data: bytes, who: tuple[int, int] | None) -> bytes | None:
        """The answer to one datagram; None to what is no question of Kineto's."""
        if len(data) < _HEAD.size or who is None:
            return None
        kind = _HEAD.unpack_from(data)[1].split(b"\0", 1)[0]
        if kind == b"ctxt":
            return _message(b"ctxt", struct.pack("<i", 1))
        if kind != b"req" or len(data) < _HEAD.size + _REQUEST.size:
            return None
        mask = _REQUEST.unpack_from(data, _HEAD.size)[0]
        return _message(b"req", self._order(who, bool(mask & _ACTIVITIES)).encode())

    def _order(self, who: tuple[int, int], ready: bool) -> str:
        pid, uid = who
        now_s = time.monotonic()
        with self._lock:
            client = self._clients.get(pid)
            # After so long a silence the same pid may be another process.
            if client is None or client.uid != uid or now_s - client.seen_s > FORGET_S:
                if len(self._clients) >= _MAX_PROCESSES:
                    self._forget(now_s)
                if len(self._clients) >= _MAX_PROCESSES:
                    return ""
                client = self._clients[pid] = _Client(pid, uid)
            client.polls += 1
            client.ready, client.seen_s = ready, now_s
            if not ready or client.polls <= POLLS_BEFORE_ORDER or not client.order:
                return ""
            client.handing = True
            return client.order

    def _forget(self, now_s: float) -> None:
        """Those that ask no more; the lock is held."""
        for pid in [p for p, c in self._clients.items() if now_s - c.seen_s > FORGET_S]:
            del self._clients[pid]

    def _taken(self, pid: int) -> None:
        with self._lock:
            client = self._clients.get(pid)
            if client is not None and client.handing:
                client.order, client.handing, client.delivered = "", False, True

    def _not_taken(self, pid: int) -> None:
        """The order stays for the next question."""
        with self._lock:
            if client := self._clients.get(pid):
                client.handing = False


def _message(kind: bytes, body: bytes) -> bytes:
    return _HEAD.pack(len(body), kind) + body


def _credentials(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int] | None:
    for level, kind, raw in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            pid, uid, _ = _CREDENTIALS.unpack(raw[: _CREDENTIALS.size])
            return (pid, uid) if pid > 0 else None
    return None


def _remove_dead(path: Path) -> None:
    """A socket that nobody listens at any more; anything else is left, and binding then fails. Raises OSError."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
    except FileNotFoundError:
        return
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        probe.connect(str(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink()
    finally:
        probe.close()


def _let_all_send(path: Path) -> None:
    """Kineto's processes of any user send here. Raises OSError.

    The folder may be the job's: whoever puts a link in the socket's place must not have another file opened up.
    """
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        if not stat.S_ISSOCK(info.st_mode) or info.st_uid != os.geteuid():
            raise OSError(errno.EEXIST, "something else was put in its place")
        os.chmod(f"/proc/self/fd/{fd}", 0o666)
    finally:
        os.close(fd)

"""Which pod a GPU was given to, from the kubelet's pod-resources socket (GA since Kubernetes 1.28).

One unary gRPC call without arguments, spoken by hand: a gRPC library would cost the daemon more memory than all else.
The protocol is HTTP/2 (RFC 9113) with literal headers (RFC 7541, 6.2.2); the answer's headers need not be understood,
since an error comes without a message.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from pymon.base.errors import SourceFailed
from pymon.sources import files
from pymon.sources.roots import Roots

TIMEOUT_S = 1.0
MAX_BYTES = (
    16 * 1024 * 1024
)  # what kubelet's clients allow (podresources client, defaultPodResourcesMaxSize)
_CALL = "/v1.PodResourcesLister/List"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8
_HEAD = struct.Struct(">BHBBI")  # length in three bytes, type, flags, stream


@dataclass(frozen=True, slots=True)
class PodDevice:
    """A device that a container was given; `device` is the plugin's name for it, mostly a GPU's or MIG's UUID."""

    namespace: str
    pod: str
    container: str
    resource: str
    device: str


@dataclass(frozen=True, slots=True)
class PodResources:
    """Asks the socket. Raises as `files.read`, and SourceFailed where the answer is none."""

    path: str = Roots().kubelet

    def devices(self) -> list[PodDevice]:
        """All devices of all pods of this node."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(TIMEOUT_S)
                sock.connect(self.path)
                sock.sendall(_request())
                message = _answer(sock, time.monotonic() + TIMEOUT_S)
        except TimeoutError:
            raise SourceFailed(f"{self.path}: no answer within {TIMEOUT_S} s") from None
        except OSError as err:
            raise files.as_source_error(self.path, err) from None
        try:
            return list(_devices(message))
        except (ValueError, IndexError) as err:
            raise SourceFailed(f"{self.path}: not a list of pods: {err!r:.100}") from None


def _request() -> bytes:
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _CALL,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(
        bytes((0, len(name))) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in headers.items()
    )
    # No header table, no push, and windows so large that the answer comes in one go.
    settings = struct.pack(">HIHIHI", 1, 0, 2, 0, 4, MAX_BYTES)
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, settings)
        + _frame(_WINDOW, 0, 0, struct.pack(">I", MAX_BYTES))
        + _frame(_HEADERS, _END_HEADERS, 1, block)
        + _frame(_DATA, _END_STREAM, 1, bytes(5))  # a message of no bytes, not compressed
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    length = len(payload)
    return _HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream) + payload


def _answer(sock: socket.socket, deadline_s: float) -> bytes:
    """The gRPC message. Raises OSError, and SourceFailed where the stream ends without one."""
    body = bytearray()
    while True:
        high, low, kind, flags, stream = _HEAD.unpack(_exactly(sock, _HEAD.size, deadline_s))
        payload = _exactly(sock, high << 16 | low, deadline_s)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            with contextlib.suppress(OSError):  # it may have said all and closed
                sock.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind in (_RESET, _GOAWAY):
            raise SourceFailed("the kubelet refused the call")
        elif kind == _DATA and stream == 1:
            body += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
        if len(body) > MAX_BYTES:
            raise SourceFailed(f"the kubelet's answer is longer than {MAX_BYTES} bytes")
        if kind in (_DATA, _HEADERS) and stream == 1 and flags & _END_STREAM:
            break
    if len(body) < 5 or body[0] != 0 or len(body) - 5 != int.from_bytes(body[1:5], "big"):
        raise SourceFailed("the kubelet answered no list of pods")
    return bytes(body[5:])


def _exactly(sock: socket.socket, count: int, deadline_s: float) -> bytes:
    data = b""
    while len(data) < count:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        sock.settimeout(left_s)
        more = sock.recv(min(count - len(data), 1 << 16))
        if not more:
            raise SourceFailed("the kubelet closed the connection")
        data += more
    return data


def _devices(message: bytes) -> Iterator[PodDevice]:
    """ListPodResourcesResponse of k8s.io/kubelet/pkg/apis/podresources/v1."""
    for pod in _parts(message, 1):
        name, namespace = _text(pod, 1), _text(pod, 2)
        for container in _parts(pod, 3):
            inner = _text(container, 1)
            for device in _parts(container, 2):
                for number in _parts(device, 2):
                    text = number.decode("utf-8", "replace")
                    yield PodDevice(namespace, name, inner, _text(device, 1), text)


def _text(message: bytes, field: int) -> str:
    return next(iter(_parts(message, field)), b"").decode("utf-8", "replace")


def _parts(message: bytes, field: int) -> Iterator[bytes]:
    """Each value of a field that holds bytes; all others are passed over. Raises ValueError or IndexError."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        kind = key & 7
        if kind == 0:
            _, at = _number(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            length, at = _number(message, at)
            if at + length > len(message):
                raise ValueError("cut off")
            if key >> 3 == field:
                yield message[at : at + length]
            at += length
        else:
            raise ValueError(f"field of kind {kind}")


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number too long")

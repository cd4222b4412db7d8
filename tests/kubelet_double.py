"""A double of the kubelet's pod-resources socket; what it answers was recorded from a server on grpcio 1.85.3."""

import contextlib
import socket
import threading

# Settings, window updates, a ping, headers, the message, trailers: one pod `ml/pod-0` whose container `train` has
# GPU-0::0 and GPU-x0 of nvidia.com/gpu.
ANSWER = bytes.fromhex(
    "000018040000000000000400400000000500400000000600004000fe030000000100000408000000000000"
    "3f0001000000040100000000000004080000000000000000050000080600000000000abbe4e28d86931400"
    "004f0104000000012088400c636f6e74656e742d74797065106170706c69636174696f6e2f677270634014"
    "677270632d6163636570742d656e636f64696e67176964656e746974792c206465666c6174652c20677a69"
    "7000004800000000000100000000430a410a05706f642d3012026d6c1a340a05747261696e12280a0e6e76"
    "696469612e636f6d2f67707512084750552d303a3a3012064750552d78301a040a0208001a010500001e01"
    "0500000001400b677270632d7374617475730130000c677270632d6d65737361676500"
)
# The same server where it does not know the method: trailers alone.
REFUSAL = bytes.fromhex(
    "000018040000000000000400400000000500400000000600004000fe030000000100000408000000000000"
    "3f000100000004010000000000000408000000000000000005000008060000000000a26d53478419e1a200"
    "00510105000000012088400c636f6e74656e742d74797065106170706c69636174696f6e2f67727063400b"
    "677270632d737461747573023132000c677270632d6d657373616765114d6574686f64206e6f7420666f75"
    "6e6421"
)


def frame(kind, flags, stream, payload):
    """An HTTP/2 frame."""
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


def answer_of(message):
    """A whole answer with this protobuf message, in frames of 16 KiB."""
    body = b"\0" + len(message).to_bytes(4, "big") + message
    parts = [body[at : at + 16384] for at in range(0, len(body), 16384)]
    return b"".join(frame(0, 0, 1, part) for part in parts) + frame(1, 5, 1, b"")


def field(number, value):
    """A protobuf field of bytes."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def pods(*devices):
    """ListPodResourcesResponse of (namespace, pod, container, resource, device)."""
    message = b""
    for namespace, pod, container, resource, device in devices:
        inner = field(1, resource) + field(2, device)
        message += field(
            1, field(1, pod) + field(2, namespace) + field(3, field(1, container) + field(2, inner))
        )
    return message


def _varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


@contextlib.contextmanager
def kubelet(path, answer, close=True):
    """Answers each connection with these bytes; without `close` it then leaves it open."""
    kept = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with contextlib.suppress(OSError):
                        peer.recv(65536)
                        peer.sendall(answer)
                        if close:
                            peer.shutdown(socket.SHUT_WR)
                            while peer.recv(65536):  # acknowledgements, until it has read all
                                pass
                    peer.close() if close else kept.append(peer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    for peer in kept:
        peer.close()

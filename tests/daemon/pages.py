"""A double of a trainer: a sealed page as the probe makes it, and a connection that hands it over."""

import array
import fcntl
import mmap
import os
import socket

from pymon.link import layout, wire
from tests.link import page_peer
from tests.waiting import PATIENCE_S


def memfd_page(
    attach_id="ab" * 16, seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW, magic=layout.MAGIC
):
    """The descriptor of a page with no steps in it."""
    fd = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, layout.PAGE_BYTES)
    with mmap.mmap(fd, layout.PAGE_BYTES) as page:
        page[: layout.HEADER.size] = page_peer.header(
            magic=magic, pid=os.getpid(), attach_id=bytes.fromhex(attach_id)
        )
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def connect(path, timeout_s=PATIENCE_S):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(timeout_s)
    sock.connect(str(path))
    return sock


def send(sock, message, fds=()):
    data = message if isinstance(message, bytes) else wire.encode(message)
    rights = (
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []
    )
    sock.sendmsg([data], rights)


def receive(sock):
    """The next message, None at the end of the connection."""
    try:
        data = sock.recv(wire.MAX_MESSAGE_BYTES)
    except ConnectionResetError:
        return None
    return wire.decode(data) if data else None


def trainer(path, **facts):
    """A welcome trainer that is this process; `facts` is what it says of itself."""
    fd = memfd_page()
    sock = connect(path)
    send(sock, wire.Hello("ab" * 16, os.getpid(), **facts), [fd])
    os.close(fd)
    assert isinstance(receive(sock), wire.Welcome)
    return sock


def hello(path, attach_id="ab" * 16, **page):
    """A connected trainer and the daemon's answer."""
    fd = memfd_page(attach_id, **page)
    sock = connect(path)
    send(sock, wire.Hello(attach_id, os.getpid()), [fd])
    os.close(fd)
    return sock, receive(sock)

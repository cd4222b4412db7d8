"""The worker process: brings the driver's library up, sweeps when it is asked to, and ends with its daemon.

    python -m pymon.sources.nvml.worker DAEMON_PID SOCKET_FD PAGE_FD [LIBRARY]

It never shuts the library down: that call may hang too, and the end of a process lets go of the driver just as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys

from pymon.sources.nvml import library, wire
from pymon.sources.nvml.announce import NO_GPU, Page
from pymon.sources.nvml.events import XidEvents
from pymon.sources.nvml.gpus import Gpus
from pymon.sources.nvml.library import CallFailed, DriverAway, Library

IDLE_S = 30.0  # without an order: NVML was switched off, and the driver shall be free
COUNT_EACH = 10  # sweeps between looks at the number of GPUs
_PR_SET_PDEATHSIG = 1


def main(daemon_pid: int, socket_fd: int, page_fd: int, path: str = "") -> None:
    """Until the daemon's end of the socket is gone, no order comes, or the driver is away."""
    sock = socket.socket(fileno=socket_fd)
    sock.settimeout(IDLE_S)
    if not _ends_with(daemon_pid):
        return
    calls = Library(Page(page_fd))
    try:
        _load(path)
        driver, nvml, cuda, count = library.start(calls)
        sock.send(wire.encode(wire.Ready(driver, nvml, cuda, library.is_double(), count)))
        _serve(sock, calls, Gpus(calls, driver, count))
    except CallFailed as err:
        sock.send(wire.encode(wire.Away(err.function, err.code, library.error_text(err.code))))
    except OSError:
        pass  # the daemon is gone, or does not ask any more


def _load(path: str) -> None:
    try:
        library.load(path)
    except OSError:
        raise CallFailed("nvmlInit", library.LIBRARY_NOT_FOUND) from None


def _serve(sock: socket.socket, calls: Library, gpus: Gpus) -> None:
    events = XidEvents(calls)
    sweeps = 0
    while data := sock.recv(wire.MAX_ORDER_BYTES):
        order = wire.decode_order(data)
        sweeps += 1
        if sweeps % COUNT_EACH == 0 and calls.call(NO_GPU, "nvmlDeviceGetCount") != gpus.count:
            raise DriverAway("nvmlDeviceGetCount", 0)  # hot-plugged: handles and indices are anew
        batch: list[wire.GpuRead] = []
        for read in gpus.read(order):
            batch.append(read)
            if read.slow is not None:  # with its lists of processes it is large enough
                sock.send(wire.encode(wire.Reads(tuple(batch))))
                batch.clear()
        if batch:
            sock.send(wire.encode(wire.Reads(tuple(batch))))
        xids: tuple[wire.Xid, ...] = ()
        if order.events:
            events.register(gpus.devices())
            xids = events.take()
        spent_ns, count, errors = calls.take_counts()
        watching = order.events and events.watching
        sock.send(wire.encode(wire.Done(xids, watching, spent_ns, count, errors)))


def _ends_with(daemon_pid: int) -> bool:
    """Dies with the daemon from now on, also in a call that hangs; one that the kernel holds outlives even this.

    False where the daemon is gone already: it may have ended before the kernel was told.
    """
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, 0)
    )  # a library that crashes each minute fills no disk
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == daemon_pid


if __name__ == "__main__":
    _, given_pid, given_socket, given_page, *given_path = sys.argv
    main(int(given_pid), int(given_socket), int(given_page), *given_path)

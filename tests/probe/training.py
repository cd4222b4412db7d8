"""One real training in a process of its own, watched as `pymon run` would watch it; and daemons that it may meet."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from pymon.link import wire
from pymon.link.page import PageReader
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
EXIT_CODE = 7
SCRIPT = """
import sys, time, torch
from torch import nn
torch.manual_seed(0); torch.set_num_threads(1)
model = nn.Linear(4, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range({steps}):
    optimizer.zero_grad(); loss = model(torch.randn(8, 4)).pow(2).mean(); loss.backward()
    optimizer.step(); time.sleep({pause_s})
print("loss", round(loss.item(), 6)); sys.exit({code})
"""


def environment(socket_path, **more):
    """The environment of a watched training; more variables replace or add."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    unset = ("PYMON_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(unset)}
    path = os.pathsep.join([str(ROOT / "pymon/cli/bootstrap"), str(ROOT)])
    path_and_quiet = {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}  # torch warns without NumPy
    watched = {"PYMON": "1", "PYMON_SOCKET": str(socket_path), "PYMON_BOOT_PYTHON": version}
    return {**clean, **path_and_quiet, **watched, **more}


def python(code, env):
    """Runs `code`; gives (exit code, stdout, stderr)."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )
    return done.returncode, done.stdout, done.stderr


def train(env, steps=30, pause_s=0.02):
    return python(SCRIPT.format(steps=steps, pause_s=pause_s, code=EXIT_CODE), env)


class DaemonDouble(threading.Thread):
    """Listens, and lets `behave(self, connection)` deal with each probe; `seen` and `receipts` are for it to fill."""

    def __init__(self, path, behave):
        super().__init__(daemon=True)
        self.behave, self.seen, self.receipts, self._open = behave, [], [], []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self.start()

    def run(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self.behave(self, connection)

    def hang_up(self):
        self._listener.close()
        for connection in self._open:
            connection.close()


def welcome(daemon, connection):
    """What the real one does; `seen` gets (hello, reader of the page)."""
    data, fds, _, _ = socket.recv_fds(connection, wire.MAX_MESSAGE_BYTES, 1)
    daemon.seen.append((wire.decode(data), PageReader.open(fds[0])))
    os.close(fds[0])
    connection.send(wire.encode(wire.Welcome()))


def silent(daemon, connection):
    daemon.seen.append(connection)


def closes(daemon, connection):
    daemon.seen.append(connection)
    connection.close()


def rejects(daemon, connection):
    connection.recv(wire.MAX_MESSAGE_BYTES)
    daemon.seen.append(connection)
    connection.send(wire.encode(wire.Reject("no room")))


def talks_nonsense(daemon, connection):
    connection.recv(wire.MAX_MESSAGE_BYTES)
    daemon.seen.append(connection)
    connection.send(b"\xff\x00 no message")


def orders_nonsense(daemon, connection):
    welcome(daemon, connection)
    connection.send(wire.encode(wire.CaptureOrder("../../x", "/etc")))
    connection.send(b'{"type": "capture"}')


def reads_nothing_at_first(daemon, connection):
    """Orders, until the probe's answers find no room and it hangs up; later it listens."""
    welcome(daemon, connection)
    if len(daemon.seen) > 1:
        daemon.receipts.append(wire.decode(connection.recv(wire.MAX_MESSAGE_BYTES)))
        return
    with contextlib.suppress(OSError):
        for number in range(100_000):
            connection.send(wire.encode(wire.CaptureOrder(f"c{number}", "relative")))

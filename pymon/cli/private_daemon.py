"""The daemon that `pymon run` brings along where none watches the node.

One per user, node and job: the tasks that a scheduler starts side by side share it. They meet in a
folder named after the job, in which `lock` is held while somebody joins or leaves, and `users` is
held shared by each as long as he is in. Outside a scheduler each run has its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pymon.cli.child_env import daemon_environment
from pymon.link import socket as agent
from pymon.link import wire

# What tells one job step from another, by scheduler: Slurm, PMIx (mpirun, prrte), LSF, PBS.
_JOB_VARIABLES = (
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("PMIX_NAMESPACE",),
    ("LSB_JOBID",),
    ("PBS_JOBID",),
)
_END_S = 2.0  # a daemon told to end needs far less


class PrivateDaemon:
    """A private daemon that this process takes part in; made by `join`."""

    def __init__(self, folder: Path, users: IO[str], started: subprocess.Popen[bytes] | None):
        self._folder, self._users, self._started = folder, users, started
        self._hold: socket.socket | None = None
        info = json.loads((folder / "run.json").read_text())
        self.run_id = str(info["run_id"])
        self.socket = Path(info["socket"])
        self.state_dir = Path(info["state_dir"])

    @classmethod
    def join(
        cls, run_id: str, kineto: bool, key: str = "", state_dir: Path | None = None
    ) -> PrivateDaemon:
        """Takes part in the daemon of `key` (else of the job), started where nobody has yet.

        `run_id` and `state_dir` are the wishes of whoever comes first. Raises OSError.
        """
        base = runtime_folder()
        _sweep(base)
        folder = base / (key or job_key())
        with _locked(folder):
            users = open(folder / "users", "a+")  # noqa: SIM115 - held as long as we take part
            alone = _try_lock(users)
            fcntl.flock(users, fcntl.LOCK_SH)
            started = None
            if alone or not (folder / "run.json").exists():
                started = _start(folder, run_id, kineto, state_dir or state_folder() / run_id)
            return cls(folder, users, started)

    def hold(self) -> bool:
        """Keeps the daemon alive from the moment it listens; False while it does not yet."""
        if self._hold is None:
            with contextlib.suppress(OSError):
                self._hold = agent.connect(self.socket, 1.0)
                self._hold.send(wire.encode(wire.Request("hold", run_id=self.run_id)))
        return self._hold is not None

    def died(self) -> str:
        """Why there is no daemon any more, by its own last words; empty while it lives."""
        if self._started is None or self._started.poll() is None:
            return ""
        lines = (self.state_dir / "daemon.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with {self._started.returncode}"

    def is_last(self) -> bool:
        """Whether nobody else takes part any more; who is told so speaks for the run, once."""
        with _locked(self._folder):
            last = _try_lock(self._users)
            if last:
                # Out of the way: whoever comes from now on begins a new run, and need not wait for this one's end.
                ended = self._folder.with_name(f"{self._folder.name}-{secrets.token_hex(4)}")
                self._folder.rename(ended)
                self._folder, self.socket = ended, ended / self.socket.name
            else:
                self._users.close()
            return last

    def leave(self, end: bool) -> None:
        """Lets go. `end`: no training process is left, so the daemon need not wait for one."""
        if self._hold is not None:
            self._hold.close()
        if self._started is not None and end:
            self._started.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._started.wait(_END_S)
        if not self._users.closed and end:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._users.close()


def new_run_id(name: str) -> str:
    """A name for people, unique for machines: `^[A-Za-z0-9_-]{1,64}$`."""
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in name)[:30]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return f"{plain.strip('-') or 'run'}-{stamp}-{secrets.token_hex(2)}"


def state_folder() -> Path:
    """Where runs are kept: `$XDG_STATE_HOME/pymon`, else `~/.local/state/pymon`."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "pymon"


def runtime_folder() -> Path:
    """A folder only we can enter, on a local disk and short enough for a socket's name.

    `$XDG_RUNTIME_DIR/pymon`, else `pymon-<uid>` in the temporary folder; one that somebody else
    made there first is not used. Raises OSError.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        base = Path(runtime, "pymon")
    else:
        base = Path(tempfile.gettempdir(), f"pymon-{os.geteuid()}")
    base.mkdir(mode=0o700, exist_ok=True)
    found = base.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or base.is_symlink():
        return Path(tempfile.mkdtemp(prefix="pymon-"))
    return base


def job_key() -> str:
    """The same for all tasks of one job step on this node; outside a scheduler one's own."""
    for names in _JOB_VARIABLES:
        values = [os.environ.get(name, "") for name in names]
        if values[0]:
            plain = "".join(char if char.isalnum() else "-" for char in ".".join(values))
            return f"job-{plain[:80]}"
    return f"run-{os.getpid()}-{secrets.token_hex(4)}"


def _start(folder: Path, run_id: str, kineto: bool, state_dir: Path) -> subprocess.Popen[bytes]:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(4)}.sock"
    arguments = ["--private", "--socket", str(path), "--state-dir", str(state_dir)]
    arguments += ["--run-id", run_id, "--kineto" if kineto else "--no-kineto"]
    with open(state_dir / "daemon.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pymon", "daemon", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=state_dir,
            env=daemon_environment(os.environ),
            start_new_session=True,
        )
    info = {"run_id": run_id, "socket": str(path), "state_dir": str(state_dir)}
    (folder / "run.json").write_text(json.dumps(info))
    return process


def _sweep(base: Path) -> None:
    """Removes what killed runs left: folders in which nobody is and whose daemon is gone."""
    for folder in base.iterdir():
        with (
            contextlib.suppress(OSError),
            open(folder / "lock") as lock,
            open(folder / "users") as users,
        ):
            free = _try_lock(lock) and _try_lock(users)
            if free and not any(_answers(path) for path in folder.glob("*.sock")):
                shutil.rmtree(folder, ignore_errors=True)


def _answers(path: Path) -> bool:
    try:
        agent.connect(path, 0.5).close()
    except OSError:
        return False
    return True


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone in the folder, which is made where it is not; another one, if it was moved away meanwhile."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        with open(folder / "lock", "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file, folder / "lock"):
                yield
                return


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False

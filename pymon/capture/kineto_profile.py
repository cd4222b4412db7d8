"""Kind `kineto`: PyTorch's own on-demand profiler, for processes that know nothing of pymon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pymon.capture import spool
from pymon.capture.background import in_background
from pymon.capture.budget import CaptureSettings
from pymon.capture.bundle import Bundle
from pymon.model.capture import CaptureKind, CaptureReceipt, ReceiptStatus
from pymon.sources.kineto import POLL_S, KinetoProcess, KinetoSocket, config_text

DURATION_MS = 2000  # steps cannot be counted without an optimizer hook; Kineto's own default is a quarter of it
# The first two questions are not answered with an order, the third is; one more for a process that is busy.
READY_WAIT_S = 4 * POLL_S
# Kineto starts two seconds after an order; writing took 3 to 5 s for 25 MB, with the node busy several times that.
WRITE_WAIT_S = 60.0
_LOOK_S = 0.2
_TRACE_DIR_ENV = "KINETO_ONDEMAND_TRACE_DIR"
_ENDED = "the process ended before its trace was written"


@dataclass(slots=True)
class KinetoProfile:
    """Leaves an order at the socket and waits for the file that Kineto renames into place."""

    settings: CaptureSettings
    kineto: KinetoSocket | None
    spool_dir: Path

    async def capture(
        self, capture_id: str, target: KinetoProcess, bundle: Bundle
    ) -> CaptureReceipt:
        """One process; always ends in a receipt."""
        began_s = time.monotonic()
        folder = _trace_dir(target, self.spool_dir) / f"{capture_id}-pid{target.pid}"
        try:
            config = config_text(folder / "trace.json", DURATION_MS)
            _make_folder(folder, target.uid)
        except (OSError, ValueError) as err:
            reason = f"{folder} cannot be given to the process's user: {err}"
            return _receipt(capture_id, target, ReceiptStatus.REFUSED, reason, began_s)
        try:
            reason = await self._order(target, folder, config)
            if not reason:
                return await in_background(
                    partial(self._pick_up, capture_id, target, folder, bundle, began_s)
                )
        finally:
            spool.clear(folder)
        return _receipt(capture_id, target, ReceiptStatus.FAILED, reason, began_s)

    async def _order(self, target: KinetoProcess, folder: Path, config: str) -> str:
        """Why there is no trace; empty when it is there."""
        kineto = self.kineto
        if kineto is None or not kineto.request(target.pid, config):
            return "the process asks for orders no more"
        await _until(lambda: kineto.delivered(target.pid) or _ended(target.pid), READY_WAIT_S)
        if not kineto.delivered(target.pid):
            kineto.withdraw(target.pid)
            if _ended(target.pid):
                return _ENDED
            return (
                f"the order was not fetched within {READY_WAIT_S:.0f} s: "
                "the process hangs, or a profiler runs in it"
            )
        await _until(lambda: bool(_written(folder)) or _ended(target.pid), WRITE_WAIT_S)
        if not _written(folder):
            if _ended(target.pid):
                return _ENDED
            return (
                f"Kineto wrote no trace within {WRITE_WAIT_S:.0f} s; torch after 2.13 writes only below "
                f"/tmp or {_TRACE_DIR_ENV}: start the job with {_TRACE_DIR_ENV}={self.spool_dir}, "
                "and mount that folder where the job runs in a container"
            )
        return ""

    def _pick_up(
        self,
        capture_id: str,
        target: KinetoProcess,
        folder: Path,
        bundle: Bundle,
        began_s: float,
    ) -> CaptureReceipt:
        limit = self.settings.trace_max_bytes
        name = f"pid{target.pid}.trace.json.gz"
        try:
            file = bundle.take(folder, _written(folder)[0], name, target.uid, limit)
            if not bundle.has_events(name):
                bundle.remove(name)
                raise ValueError("it holds no events: nothing of torch ran in those two seconds")
        except (OSError, ValueError) as err:
            reason = f"the trace could not be taken over: {err}"
            return _receipt(capture_id, target, ReceiptStatus.FAILED, reason, began_s)
        took_s = time.monotonic() - began_s
        return CaptureReceipt(
            capture_id,
            CaptureKind.KINETO,
            target.pid,
            None,
            ReceiptStatus.WRITTEN,
            files=(file,),
            took_s=took_s,
        )


def _written(folder: Path) -> list[str]:
    """Kineto writes `trace_<pid>.json.tmp` and renames it when it is whole."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return []


def _make_folder(folder: Path, uid: int) -> None:
    """A new folder that belongs to the process's user; the spool is sticky, so nobody can put another in its place."""
    os.mkdir(folder, 0o750)  # its group is the daemon's, by the spool's setgid bit
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(fd, uid, -1)
    except OSError:
        os.rmdir(folder)
        raise
    finally:
        os.close(fd)


def _trace_dir(target: KinetoProcess, spool_dir: Path) -> Path:
    """The spool; for a process of our own user, the folder that its environment names.

    A privileged daemon makes nothing below a path that another user chose.
    """
    if target.uid != os.geteuid():
        return spool_dir
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{target.pid}/environ").read_bytes().split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name.decode("utf-8", "replace") == _TRACE_DIR_ENV and value.startswith(b"/"):
                return Path(os.fsdecode(value))
    return spool_dir


def _ended(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


async def _until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition() and time.monotonic() <= deadline_s:
        await asyncio.sleep(_LOOK_S)


def _receipt(
    capture_id: str, target: KinetoProcess, status: ReceiptStatus, reason: str, began_s: float
) -> CaptureReceipt:
    return CaptureReceipt(
        capture_id=capture_id,
        kind=CaptureKind.KINETO,
        pid=target.pid,
        rank=None,
        status=status,
        reason=reason,
        took_s=time.monotonic() - began_s,
    )

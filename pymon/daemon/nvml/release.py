"""Letting go of the driver on request."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from pymon.daemon.nvml.supervisor import Supervisor
from pymon.daemon.peers import Peer
from pymon.link import wire

WAIT_S: Final = 10.0  # a tick, and the end of a process


async def release(gpus: Supervisor, peer: Peer, for_s: float) -> wire.Reply:
    """The answer once the driver's files are closed, or why they are not."""
    if peer.uid not in (0, os.geteuid()):
        return wire.Reply(False, True, "only root and the daemon's own user may release the driver")
    gpus.release(for_s)
    if for_s <= 0:
        return wire.Reply(last=True, text="the driver is taken again")
    loop = asyncio.get_running_loop()
    until_s = loop.time() + WAIT_S
    while gpus.holds_driver and loop.time() < until_s:
        await asyncio.sleep(0.05)
    if gpus.holds_driver:
        text = "a worker is stuck in the driver: no signal ends it, only the driver can"
        return wire.Reply(False, True, text)
    return wire.Reply(last=True, text=f"the driver is let go for {for_s:g} s")

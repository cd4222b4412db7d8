"""A fixed tick; one that comes too late is skipped and counted, never made up for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

TICK_S = 1.0  # design: what a person watching live wants, and a scrape interval allows several of


@dataclass(slots=True)
class Schedule:
    """Calls `work` each `tick_s` until cancelled."""

    work: Callable[[], Awaitable[None]]
    tick_s: float = TICK_S
    skipped_total: int = 0

    async def run(self) -> None:
        """Raises what `work` raises."""
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            await self.work()
            next_s += self.tick_s
            behind = int((loop.time() - next_s) // self.tick_s) + 1
            if behind > 0:
                self.skipped_total += behind
                next_s += behind * self.tick_s
            await asyncio.sleep(max(0.0, next_s - loop.time()))

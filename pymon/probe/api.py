"""What training code may call. Nothing here raises, and nothing is needed: the hooks see most loops by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pymon.probe import attach as attaching


def attach() -> bool:
    """Watch this process from now on; False where that is not possible, with one line on stderr that says why.

    Attaching twice is attaching once. `PYMON=0` in the environment switches it off.
    """
    return attaching.attach()


def step() -> None:
    """A step ends here. From the first call on, nothing else counts as a step in this process.

    For loops that the hooks cannot tell apart (several critic steps to one of the generator, no optimizer at all).
    """
    native = attaching.native()
    if native is not None:
        native.step()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Time a part of the step under a name of your own; also a decorator. Up to eight names, 31 bytes each.

    Its seconds may overlap the phases that the hooks see, and are exported beside them.
    """
    native = attaching.native()
    if native is None:
        yield
        return
    began_ns = time.monotonic_ns()
    try:
        yield
    finally:
        slot = native.phase_slot(str(name))
        if slot >= 0:
            native.add_phase(slot, time.monotonic_ns() - began_ns)

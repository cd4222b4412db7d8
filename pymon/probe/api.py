"""What training code may call. Nothing here raises, and nothing is needed: the hooks see most loops by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymon.probe import attach as attaching


def attach() -> bool:
    """Watch this process from now on; False where that is not possible, with one line on stderr that says why.

    Attaching twice is attaching once. `PYMON=0` in the environment switches it off.
    """
    return attaching.attach()


def step(samples: int | None = None, tokens: int | None = None) -> None:
    """A step ends here. From the first call on, nothing else counts as a step in this process.

    For loops that the hooks cannot tell apart (several critic steps to one of the generator, no optimizer at all).
    `samples`, `tokens`: what this process worked on in the step; batches are then no longer asked.
    """
    native = attaching.native()
    if native is None:
        return
    for count, give in ((samples, native.give_samples), (tokens, native.give_tokens)):
        if count is not None and (number := _whole(count)) is not None:
            give(number)
    native.step()


def model_flops(per_sample: float | None = None, per_token: float | None = None) -> None:
    """Floating-point operations of the model, forward and backward pass, for each sample or token.

    Of this process alone, where several share a model. From it follows the model FLOPs utilisation, on a GPU whose
    peak is known. With both, tokens are taken where they are known.
    """
    native = attaching.native()
    if native is not None:
        native.set_flops(_whole(per_sample) or 0, _whole(per_token) or 0)


@contextmanager
def evaluation() -> Iterator[None]:
    """What runs inside is an evaluation, and no part of a step; also a decorator.

    For evaluations that no DataLoader feeds; others are seen without it.
    """
    native = attaching.native()
    if native is None:
        yield
        return
    native.evaluation_begin()
    try:
        yield
    finally:
        native.evaluation_end()


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


def _whole(number: Any) -> int | None:
    """None where that is no number from 0 to 2^63: a count of the user's must not end his training."""
    try:
        whole = int(number)
    except (TypeError, ValueError, OverflowError):
        return None
    return whole if 0 <= whole < 2**63 else None

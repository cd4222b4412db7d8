"""Attaching: the one place where all ways in end, and where every failure of the probe ends in one warning line."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import sys
import threading
from collections.abc import Callable
from typing import Any

_state: dict[str, Any] = {
    "native": None,
    "sender": None,
    "gpu": None,
    "watchers": (),
    "failed": False,
}
_attaching = threading.Lock()


def native() -> Any:
    """The native module once this process is attached, else None."""
    return _state["native"]


def attach() -> bool:
    """Put the hooks in; the page and the connection follow at the first training activity. Never raises."""
    if _state["native"] is not None:
        return True
    if os.environ.get("PYMON") == "0" or _state["failed"]:
        return False
    try:
        return _attach()
    except Exception as err:  # noqa: BLE001 - the border to somebody's training
        warn(f"cannot watch this process: {type(err).__name__}: {err}")
        _state["failed"] = True  # part of the hooks may be in: a second try would put them in twice
        return False


def _attach() -> bool:
    from pymon import native as modules

    module, why_not = modules.probe()
    if module is None:
        warn(f"cannot watch this process: {why_not}")
        _state["failed"] = True
        return False
    import torch

    with (
        _attaching
    ):  # not around the import: it may be going on in another thread, which attaches at its end
        return _state["native"] is not None or _install(module, torch)


def _install(module: Any, torch: Any) -> bool:
    # All of the probe is loaded here, right after torch: later it would cost the first step.
    from pymon.probe import (
        allocator,
        budget,
        captures,
        checkpoints,
        collectives,
        events,
        gpu,
        hooks,
        host_memory,
        profiler_registry,
        sender,
    )

    # Now, not at the first order: a session of the user's that is in its warm-up already could not be seen later, and
    # a second profiler would crash it.
    profiler_registry.registry().install()
    watch_sessions = functools.partial(_watch_sessions, module, gpu.GpuLayers)
    watch_sessions()
    module.set_activity_callback(
        lambda: _begin(module, sender.Sender, captures.Captures, budget.Budget, watch_sessions)
    )
    hooks.install(module, torch)
    watching = events.Events(module)
    checkpoints.install(module, watching.saved)
    looking = collectives.Collectives(module), allocator.Allocator(module, warn)
    _state["watchers"] = watching, looking[0], host_memory.HostMemory(module)
    for watcher in (watching, *looking):
        watcher.install(torch)
    module.set_second_callback(functools.partial(_look, *looking))
    _state["native"] = module
    return True


def _watch_sessions(native: Any, gpu: Any) -> Any:
    """From now on sessions lend CUPTI out, also those that are open when the GPU layers start."""
    from pymon.probe.profiler_registry import registry

    layers = gpu(native, warn)
    registry().on_open, registry().on_end = layers.session_opens, layers.session_ends
    _state["gpu"] = layers
    return layers


def _begin(
    native: Any, sender: Any, captures: Any, budget: Any, watch_sessions: Callable[[], Any]
) -> None:
    """The first backward pass or optimizer call, also of a fork's child that trains: now it is a rank."""
    from pymon.probe import identity

    try:
        layers = _state["gpu"]
        if not layers.is_of_this_process:
            layers = watch_sessions()
        attach_id = secrets.token_bytes(16)
        fd = native.open_page(attach_id)
        if (restarts := identity.restarts(os.environ)) is not None:
            native.set_restarts(restarts)
        name = attach_id.hex()
        orders = captures(native, name, layers=layers)
        limits = budget(native, layers, lambda: orders.wants_steps)
        each_tick = functools.partial(_tick, layers, *_state["watchers"])
        _state["sender"] = sender(name, fd, orders, limits, each_tick)
        _state["sender"].start()
    except Exception as err:  # noqa: BLE001 - the border to somebody's training
        warn(f"this process is timed, but nobody will see it: {type(err).__name__}: {err}")


def _tick(*watchers: Any) -> None:
    for watcher in watchers:
        with contextlib.suppress(Exception):  # each costs itself only, not the others or the socket
            watcher.poll()


def _look(*watchers: Any) -> None:
    """Training thread, after a step, once a second at most."""
    for watcher in watchers:
        with contextlib.suppress(Exception):
            watcher.look()


def warn(text: str) -> None:
    """One line on stderr."""
    try:
        sys.stderr.write(f"pymon: {text}\n")
    except (OSError, ValueError, AttributeError):
        return  # no stderr: nobody to tell

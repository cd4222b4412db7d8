"""Where the training code makes synchronising calls: file and line, recorded only while a capture
runs.

A profiler trace knows the first line of a function at most, so the calls themselves are wrapped
with the native `CallTimer` for the few steps of a capture, and put back exactly as they were.
"""

from __future__ import annotations

from typing import Any

VERSION = 1
# Calls that read a value back from the device, and so wait for it; those that the user writes.
_TENSOR = (
    "item",
    "tolist",
    "cpu",
    "numpy",
    "nonzero",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
)
_CUDA = (("", "synchronize"), ("Stream", "synchronize"), ("Event", "synchronize"))


def _owners() -> list[tuple[Any, str, str]]:
    """(owner, attribute, name in the report) of each call there is in this torch."""
    import torch

    found = [(torch.Tensor, name, f"Tensor.{name}") for name in _TENSOR]
    for cls, name in _CUDA:
        owner = getattr(torch.cuda, cls, None) if cls else torch.cuda
        found.append((owner, name, ".".join(filter(None, ("cuda", cls, name)))))
    return [one for one in found if hasattr(one[0], one[1])]


class CallSites:
    """The wrapped calls of one capture. `native` is `pymon.native._probe`."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._wrapped: list[tuple[Any, str, Any, Any, bool]] = []

    def start(self) -> None:
        """Wraps the calls. Raises whatever torch raises; `stop` then restores what was wrapped."""
        self._native.clear_call_sites()
        for owner, name, label in _owners():
            own = name in vars(owner)
            original = vars(owner)[name] if own else getattr(owner, name)
            if isinstance(original, (staticmethod, classmethod, property)):
                continue
            timer = self._native.CallTimer(original, label)
            setattr(owner, name, timer)
            self._wrapped.append((owner, name, original, timer, own))

    def stop(self) -> None:
        """Puts everything back; an attribute that somebody else set meanwhile is left as it is."""
        while self._wrapped:
            owner, name, original, timer, own = self._wrapped.pop()
            if vars(owner).get(name) is not timer:
                continue
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

    def document(self, steps: int, window_s: float) -> dict[str, Any]:
        """The recorded sites, for `call_sites.json`; durations in nanoseconds."""
        keys = ("call", "file", "line", "function", "calls", "total_ns", "max_ns")
        sites = [dict(zip(keys, site, strict=True)) for site in self._native.call_sites()]
        return {"version": VERSION, "steps": steps, "window_s": window_s, "sites": sites}

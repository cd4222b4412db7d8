"""pymon: leave it on; when training slows down, the trace, the cause and the fix are already there.

`attach()`, `step()`, `phase()`, `evaluation()` and `model_flops()` are the face that training code sees. They are
loaded on first use, because importing `pymon` must cost a training process nothing.
"""

from __future__ import annotations

# Not from `typing`: importing that costs every start of Python under PYMON=1 ten milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pymon.probe.api import attach, evaluation, model_flops, phase, step

__version__ = "0.1.0"
__all__ = ["__version__", "attach", "evaluation", "model_flops", "phase", "step"]


def __getattr__(name: str) -> Any:
    if name in ("attach", "evaluation", "model_flops", "phase", "step"):
        from pymon.probe import api

        return getattr(api, name)
    raise AttributeError(f"module 'pymon' has no attribute {name!r}")

"""Trace -> facts -> rules -> ranked diagnoses.

`diagnose(paths)` is the whole of it; see `engine`.
"""

from pymon.diagnosis.engine import diagnose

__all__ = ["diagnose"]

"""What exporters make of a snapshot: samples, in parts that are made again only where they have changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from pymon.model.distribution import Histogram

Labels = tuple[str, ...]
Sample = tuple[str, Labels, "float | Histogram"]  # family, label values, value
# A name for the part, what it is made of, and its samples: not asked for while the second equals that of the last page.
Part = tuple[Hashable, object, Iterable[Sample]]

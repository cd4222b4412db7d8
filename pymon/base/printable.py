"""Names that anyone may choose (processes, control groups, devices), made fit for a line of text."""

from __future__ import annotations


def printable(name: str, most: int = 64) -> str:
    """The name without what is no character of a line, cut to `most` characters."""
    return "".join(char if char.isprintable() else "?" for char in name[:most])

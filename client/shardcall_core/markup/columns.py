"""Tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table as lines, each column as wide as its longest cell."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

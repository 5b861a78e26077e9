"""Drawings of the blocks of an array, as text and for notebooks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Protocol
from xml.etree.ElementTree import Element, tostring

from shardcall._src.display import notebook
from shardcall_core.types.blocks import BlockGrid, device_label

_WIDEST = 110
_MAX_ROWS = 64
_MAX_LISTED = 128
_IN_ASCII = str.maketrans({"─": "-", "│": "|", "×": "x", "…": "...", **dict.fromkeys("┌┬┐├┼┤└┴┘", "+")})


class _Printer(Protocol):
    """The printer of IPython."""

    def text(self, text: str, /) -> object: ...


class Drawing(str):
    """The blocks of an array with the devices that hold them: text to print, and in a notebook a picture.

    Attributes:
        caption: a line about the array.
        grid: the blocks.
    """

    caption: str
    grid: BlockGrid

    def __new__(cls, caption: str, grid: BlockGrid) -> Drawing:
        """Draws the text, which a string takes at construction."""
        drawing = super().__new__(cls, f"{caption}\n{draw(grid)}")
        drawing.caption = caption
        drawing.grid = grid
        return drawing

    def __str__(self) -> str:
        """Returns the text, in ASCII if standard output has no other characters."""
        return printable(super().__str__())

    def __getnewargs__(self) -> tuple[str, BlockGrid]:  # type: ignore[override]  # of its own constructor, for pickle
        return self.caption, self.grid

    def _repr_svg_(self) -> str | None:
        """Returns the picture for a notebook; None for other ranks than 1 and 2, which are tables."""
        return tostring(element(self), encoding="unicode") if _boxes(self.grid) else None

    def _repr_html_(self) -> str | None:
        """Returns the table for a notebook, of other ranks or too many blocks; None for a picture."""
        if _boxes(self.grid):
            return None
        return tostring(element(self), encoding="unicode", method="html")

    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:
        """Prints the lines in IPython instead of the repr of a string."""
        printer.text(str(self))


def printable(text: str) -> str:
    """Returns a text that standard output can print: itself, or its lines and other characters in ASCII."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return text.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode()
    return text


def element(drawing: Drawing) -> Element:
    """Returns the picture of a drawing in SVG, or its table in HTML."""
    if _boxes(drawing.grid):
        return notebook.picture(drawing.caption, drawing.grid)
    return notebook.table(drawing.caption, len(drawing.grid.shape), *_listed(drawing.grid))


def draw(grid: BlockGrid) -> str:
    """Returns a drawing: boxes for rank 1 and 2, a table for other ranks and too many blocks.

    Each box names the devices that hold the block, several if it is replicated; the indices along the edges are those
    of the caller's array, without padding.
    """
    return "\n".join(_boxes(grid) or _table(grid))


def _boxes(grid: BlockGrid) -> list[str]:
    """Returns the lines of a drawing in boxes; none if the array needs a table."""
    if len(grid.shape) not in (1, 2) or max(grid.counts) > _MAX_ROWS:
        return []
    columns, rows, cells = notebook.labels(grid)
    width = max(len(text) for line in [columns, *cells] for text in line) + 2
    margin = max(map(len, rows))
    indent = " " * (margin + 1) if margin else ""

    def rule(left: str, middle: str, right: str) -> str:
        return indent + left + middle.join(["─" * width] * len(columns)) + right

    lines = [indent + " " + " ".join(text.center(width) for text in columns), rule("┌", "┬", "┐")]
    for i, (label, line) in enumerate(zip(rows, cells, strict=True)):
        if i:
            lines.append(rule("├", "┼", "┤"))
        body = "│".join(text.center(width) for text in line)
        lines.append((f"{label:>{margin}} " if margin else "") + f"│{body}│")
    lines.append(rule("└", "┴", "┘"))
    return [line.rstrip() for line in lines] if len(lines[-1]) <= _WIDEST else []


def _table(grid: BlockGrid) -> Iterable[str]:
    first, left_out, last = _listed(grid)
    width = max(len(devices) for devices, _ in [*first, *last])
    for part in (first, last):
        yield from (f"device {devices:<{width}}  [{', '.join(spans)}]" for devices, spans in part)
        if left_out and part is first:
            yield f"… {left_out:,} more blocks …"


def _listed(grid: BlockGrid) -> tuple[list[notebook.Row], int, list[notebook.Row]]:
    """Returns the first blocks, the number of omitted ones, and the last blocks."""
    rows = [
        (device_label(devices), tuple(grid.label(axis, i) for axis, i in enumerate(block)))
        for block, devices in grid.holders.items()
    ]
    if len(rows) <= _MAX_LISTED:
        return rows, 0, []
    half = _MAX_LISTED // 2
    return rows[:half], len(rows) - _MAX_LISTED, rows[-half:]

"""Drawings of blocks for notebooks: SVG and HTML, built element by element, so all text is escaped."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TypeAlias
from xml.etree.ElementTree import Element, SubElement

from shardcall_core.markup.colours import device_colour
from shardcall_core.types.blocks import BlockGrid, device_label

Row: TypeAlias = tuple[str, tuple[str, ...]]
"""The devices of a block, and its span along each axis."""

# In pixels; the drawing has a panel of its own colour, readable on light and dark pages.
_FONT, _CHARACTER, _LINE, _MARGIN = 13, 8, 18, 12
_WIDTH, _HEIGHT, _MIN_HEIGHT, _RANK_1_HEIGHT = 288, 208, 26, 44
_MIN_TITLE = 60  # characters
PANEL, LABEL = "shardcall-panel", "shardcall-label"
_STYLE = (
    ".shardcall-panel{fill:var(--jp-layout-color1,#fff)}.shardcall-label{fill:var(--jp-content-font-color1,#222)}"
    "@media (prefers-color-scheme:dark){.shardcall-panel{fill:var(--jp-layout-color1,#1c1c1e)}"
    ".shardcall-label{fill:var(--jp-content-font-color1,#e6e6e6)}}"
)
_INK = "#111111"


def labels(grid: BlockGrid) -> tuple[list[str], list[str], list[list[str]]]:
    """Returns the labels of columns, of rows (one, empty, for rank 1) and of the blocks themselves, row by row."""
    axis = len(grid.shape) - 1
    columns = [grid.label(axis, i) for i in range(grid.counts[axis])]
    rows = [grid.label(0, i) for i in range(grid.counts[0])] if axis else [""]
    cells = [[device_label(devices) for devices in line] for line in _holders(grid)]
    return columns, rows, cells


def picture(title: str, grid: BlockGrid) -> Element:
    """Returns an SVG of an array of rank 1 or 2: a box for each block, coloured by the first of its devices.

    Colours are an aid only: every box names its devices, and has its span as a tooltip.
    """
    columns, rows, cells = labels(grid)
    widest = max(len(text) for line in [columns, *cells] for text in line) + 2
    box = max(widest * _CHARACTER, _WIDTH // len(columns))
    tall = max(_MIN_HEIGHT, _HEIGHT // len(rows)) if len(grid.shape) > 1 else _RANK_1_HEIGHT
    left = _MARGIN + (max(map(len, rows)) + 1) * _CHARACTER * (len(grid.shape) - 1)
    lines = textwrap.wrap(title, max(_MIN_TITLE, (left + box * len(columns)) // _CHARACTER))
    top = _MARGIN + _LINE * (len(lines) + 1) + _LINE // 3
    width = max(left + box * len(columns), _MARGIN + max(map(len, lines)) * _CHARACTER) + _MARGIN
    svg = picture_canvas(title, width, top + tall * len(rows) + _MARGIN)
    svg.insert(1, description := Element("desc"))
    description.text = f"{len(grid.holders)} blocks, each with the devices that hold it"
    for i, line in enumerate(lines):
        _text(svg, line, _MARGIN, _MARGIN + _LINE * i + _LINE // 2, anchor="start")
    for column, label in enumerate(columns):
        _text(svg, label, left + box * column + box // 2, top - _LINE // 2)
    for row, (label, holders) in enumerate(zip(rows, _holders(grid), strict=True)):
        if label:
            _text(svg, label, left - _CHARACTER, top + tall * row + tall // 2, anchor="end")
        for column, devices in enumerate(holders):
            box_area = {"x": left + box * column, "y": top + tall * row, "width": box, "height": tall}
            _block(svg, f"[{', '.join(filter(None, [label, columns[column]]))}]", devices, box_area)
    return svg


def table(title: str, rank: int, first: Sequence[Row], left_out: int, last: Sequence[Row]) -> Element:
    """Returns an HTML table of blocks, in the page's own colours.

    Args:
        title: the caption.
        rank: the number of axes of the array.
        first: the blocks before the omitted ones.
        left_out: the number of omitted blocks.
        last: the blocks after them.
    """
    page = Element("table")
    SubElement(page, "caption").text = title
    head = SubElement(SubElement(page, "thead"), "tr")
    for name in ["devices", *(f"axis {axis}" for axis in range(rank))]:
        SubElement(head, "th", scope="col").text = name
    body = SubElement(page, "tbody")
    for part in (first, last):
        for devices, spans in part:
            line = SubElement(body, "tr")
            SubElement(line, "th", scope="row").text = devices
            for span in spans:
                SubElement(line, "td").text = span
        if left_out and part is first:
            SubElement(SubElement(body, "tr"), "td", colspan=str(rank + 1)).text = f"… {left_out:,} more blocks …"
    return page


def picture_canvas(title: str, width: int, height: int) -> Element:
    """Returns an SVG of a size in pixels, whose panel fills it."""
    svg = Element("svg", xmlns="http://www.w3.org/2000/svg", role="img", width=str(width), height=str(height))
    svg.set("viewBox", f"0 0 {width} {height}")
    svg.set("style", "max-width:100%;height:auto")
    svg.set("font-family", "ui-monospace,Menlo,Consolas,monospace")
    svg.set("font-size", str(_FONT))
    SubElement(svg, "title").text = title
    SubElement(svg, "style").text = _STYLE
    SubElement(svg, "rect", {"class": PANEL, "width": "100%", "height": "100%", "rx": "6"})
    return svg


def _block(svg: Element, span: str, devices: tuple[int, ...], area: dict[str, int]) -> None:
    group = SubElement(svg, "g")
    SubElement(group, "title").text = f"{span} on device {', '.join(map(str, devices))}"
    box = {name: str(value) for name, value in area.items()}
    SubElement(group, "rect", {**box, "fill": device_colour(devices[0]), "stroke": "#444444"})
    middle = area["x"] + area["width"] // 2, area["y"] + area["height"] // 2
    _text(group, device_label(devices), *middle).set("fill", _INK)


def _text(parent: Element, text: str, x: int, y: int, anchor: str = "middle") -> Element:
    element = SubElement(parent, "text", {"x": str(x), "y": str(y), "text-anchor": anchor, "dy": "0.35em"})
    if parent.tag == "svg":
        element.set("class", LABEL)
    element.text = text
    return element


def _holders(grid: BlockGrid) -> list[list[tuple[int, ...]]]:
    """Returns the devices of each block of an array of rank 1 or 2, row by row."""
    *above, columns = grid.counts
    rows = [(row,) for row in range(*above)] if above else [()]
    return [[grid.holders[(*row, column)] for column in range(columns)] for row in rows]

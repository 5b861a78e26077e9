"""The picture of the demonstration, in SVG: the blocks of the array, and bars of the times."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element, SubElement, tostring

from shardcall._src.display.drawing import Drawing
from shardcall._src.display.notebook import LABEL, picture, picture_canvas
from shardcall_core.markup.colours import phase_colour

# In pixels.
_MARGIN, _LINE, _BAR, _STEP, _LABEL, _LONGEST, _FIGURE = 12, 18, 24, 52, 16, 260, 80


def demo_picture(title: str, blocks: Drawing, times: Mapping[str, float]) -> str:
    """Returns a picture.

    Args:
        title: its line.
        blocks: an array of rank 1 or 2.
        times: the seconds of each way to compute, drawn from above.
    """
    left = picture(blocks.caption, blocks.grid)
    x, height = int(left.get("width", "0")) + _MARGIN, int(left.get("height", "0"))
    drawn = picture_canvas(title, x + _LONGEST + _FIGURE + _MARGIN, height + _LINE + _MARGIN)
    _text(drawn, title, _MARGIN, _MARGIN + _LINE // 2).set("font-weight", "bold")
    left.set("y", str(_LINE + _MARGIN))
    drawn.append(left)
    top = _MARGIN + _LINE + (height - _STEP * len(times)) // 2
    for index, (name, seconds) in enumerate(times.items()):
        width = max(1, round(_LONGEST * seconds / max(times.values())))
        y = top + _STEP * index
        _text(drawn, name, x, y)
        bar = {"x": str(x), "y": str(y + _LABEL), "width": str(width), "height": str(_BAR), "rx": "3"}
        SubElement(drawn, "rect", {**bar, "fill": phase_colour(index)})
        _text(drawn, f"{seconds * 1e3:.1f} ms", x + width + 8, y + _LABEL + _BAR // 2)
    return tostring(drawn, encoding="unicode") + "\n"


def _text(parent: Element, text: str, x: int, y: int) -> Element:
    element = SubElement(parent, "text", {"class": LABEL, "x": str(x), "y": str(y), "dy": "0.35em"})
    element.text = text
    return element

import copy
import io
import itertools
import pickle
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
from rows import rows

from shardcall import Mesh, P
from shardcall._src.display.drawing import Drawing, draw
from shardcall_core.types.blocks import block_grid

AB = Mesh(a=4, b=2)
# Those of more layouts are compared with JAX's in kernels/test_drawings_equal_jax.py.

DRAWINGS = {
    "both axes sharded": (
        ((8, 6), P("a", "b"), Mesh(a=2, b=2)),
        """
      0:3   3:6
    ┌─────┬─────┐
0:4 │  0  │  1  │
    ├─────┼─────┤
4:8 │  2  │  3  │
    └─────┴─────┘
""",
    ),
    "a size that does not divide": (
        ((5,), P("x"), Mesh(x=4)),
        """
  0:2   2:4   4:5   5:5
┌─────┬─────┬─────┬─────┐
│  0  │  1  │  2  │  3  │
└─────┴─────┴─────┴─────┘
""",
    ),
    "replicated on more than eight": (
        ((5,), P(), Mesh(x=16)),
        """
       0:5
┌───────────────┐
│ 0,1,…,15 (16) │
└───────────────┘
""",
    ),
    "rank 0": (((), P(), Mesh(x=2)), "\ndevice 0,1  []\n"),
    "rank 3": (
        ((4, 5, 6), P("a", None, "b"), Mesh(a=2, b=2)),
        """
device 0  [0:2, 0:5, 0:3]
device 1  [0:2, 0:5, 3:6]
device 2  [2:4, 0:5, 0:3]
device 3  [2:4, 0:5, 3:6]
""",
    ),
}


@rows(("placed", "expected"), DRAWINGS.values())
def test_drawings(placed, expected):
    assert draw(block_grid(*placed)) == expected.strip("\n")


def test_what_is_too_wide_or_too_high_for_boxes_becomes_a_table():
    lines = draw(block_grid((64, 64), P(None, "x"), Mesh(x=64))).splitlines()
    assert (len(lines), lines[63]) == (64, "device 63  [0:64, 63:64]")
    assert draw(block_grid((64, 1), P("x"), Mesh(x=64))).endswith("┘")
    lines = draw(block_grid((65, 1), P("x"), Mesh(x=65))).splitlines()
    assert (len(lines), lines[0]) == (65, "device 0   [0:1, 0:1]")


def test_a_table_of_very_many_blocks_leaves_out_those_in_the_middle():
    lines = draw(block_grid((5000,), P("x"), Mesh(x=5000))).splitlines()
    assert (len(lines), lines[64]) == (129, "… 4,872 more blocks …")
    for line, i in ((0, 0), (63, 63), (65, 4936), (128, 4999)):
        assert lines[line].split() == ["device", f"{i}", f"[{i}:{i + 1}]"]


def drawing(shape, spec, mesh, title="title"):
    return Drawing(title, block_grid(shape, spec, mesh))


def test_a_drawing_is_its_title_and_text_and_survives_copies():
    drawn = drawing((5,), P("x"), Mesh(x=4))
    assert drawn == "title\n" + draw(drawn.grid)
    for again in (copy.deepcopy(drawn), pickle.loads(pickle.dumps(drawn))):
        assert (again, again.caption, again.grid) == (drawn, "title", drawn.grid)
        assert again._repr_svg_() == drawn._repr_svg_()


def test_ipython_prints_the_lines():
    printed = []
    drawn = drawing((5,), P("x"), Mesh(x=4))
    drawn._repr_pretty_(SimpleNamespace(text=printed.append), False)
    assert printed == [drawn]
    assert type(printed[0]) is str


SVG = "{http://www.w3.org/2000/svg}"
FLAT = {name: case for name, case in DRAWINGS.items() if len(case[0][0]) in (1, 2)}


@rows(("placed", "expected"), FLAT.values())
def test_a_notebook_shows_the_boxes_as_a_picture(placed, expected):
    drawn = drawing(*placed)
    assert drawn._repr_html_() is None
    svg = ElementTree.fromstring(drawn._repr_svg_())
    assert (svg.tag, svg.get("role")) == (f"{SVG}svg", "img")
    assert svg[0].text == "title"  # first, where readers of screens look for the name
    boxes = svg.findall(f"{SVG}g")
    in_text = [cell.strip() for line in expected.splitlines() for cell in line.split("│")[1:-1]]
    assert [box.find(f"{SVG}text").text for box in boxes] == in_text
    assert [box.find(f"{SVG}title").text for box in boxes] == [
        f"[{', '.join(drawn.grid.label(axis, i) for axis, i in enumerate(block))}] on device {', '.join(map(str, ids))}"
        for block, ids in drawn.grid.holders.items()
    ]
    assert set(re.findall(r"\d+:\d+", expected)) | {"title"} == {label.text for label in svg.findall(f"{SVG}text")}


@rows(("placed", "expected"), FLAT.values())
def test_boxes_of_a_picture_tile_it_and_hold_their_text(placed, expected):
    svg = ElementTree.fromstring(drawing(*placed, title="a title of many words " * 9)._repr_svg_())
    boxes = [rectangle(box) for box in svg.findall(f"{SVG}g")]
    assert len({(width, height) for _, _, width, height in boxes}) == 1
    assert len({(x, y) for x, y, _, _ in boxes}) == len(boxes)
    total = (max(x + w for x, _, w, _ in boxes) - boxes[0][0]) * (max(y + h for _, y, _, h in boxes) - boxes[0][1])
    assert total == sum(w * h for _, _, w, h in boxes)
    for box, (_, _, width, _) in zip(svg.findall(f"{SVG}g"), boxes, strict=True):
        assert len(box.find(f"{SVG}text").text) * 8 <= width
    width, height = int(svg.get("width")), int(svg.get("height"))
    for text in svg.findall(f"{SVG}text"):
        x, long = int(text.get("x")), len(text.text) * 8
        left = {"start": x, "middle": x - long / 2, "end": x - long}[text.get("text-anchor")]
        assert 0 <= left <= left + long <= width
        assert 0 <= int(text.get("y")) <= height


def rectangle(box):
    return [int(box.find(f"{SVG}rect").get(name)) for name in ("x", "y", "width", "height")]


def test_text_in_boxes_is_readable_whatever_the_device_and_the_page():
    svg = ElementTree.fromstring(drawing((8, 8), P(("a", "b"), "c"), Mesh(a=8, b=8, c=8))._repr_svg_())
    for box in svg.findall(f"{SVG}g"):
        assert contrast(box.find(f"{SVG}rect").get("fill"), box.find(f"{SVG}text").get("fill")) >= 7
    style = svg.find(f"{SVG}style").text
    panels, labels = (
        re.findall(rf"shardcall-{name}{{fill:var\(--jp-[a-z0-9-]+,(#\w+)\)}}", style) for name in ("panel", "label")
    )
    assert len(panels) == len(labels) == 2  # of light pages and of dark ones
    for pair in zip(panels, labels, strict=True):
        assert contrast(*pair) >= 7


def contrast(*colours):
    """The contrast ratio of WCAG 2."""
    parts = [
        re.findall("..", "".join(2 * c for c in colour[1:]) if len(colour) == 4 else colour[1:]) for colour in colours
    ]
    linear = [[(int(part, 16) / 255) ** 2.2 for part in colour] for colour in parts]
    dark, light = sorted(np.dot(linear, [0.2126, 0.7152, 0.0722]))
    return (light + 0.05) / (dark + 0.05)


def test_adjacent_devices_differ_in_colour():
    svg = ElementTree.fromstring(drawing((8, 8), P("a", "b"), Mesh(a=4, b=4))._repr_svg_())
    assert len({box.find(f"{SVG}rect").get("fill") for box in svg.findall(f"{SVG}g")}) == 16


@rows(
    ("shape", "spec", "mesh", "rows"),
    [
        ((), P(), Mesh(x=2), 1),
        ((4, 5, 6), P("a", None, "b"), Mesh(a=2, b=2), 4),
        ((64, 64), P(None, "x"), Mesh(x=64), 64),
        ((200,), P("x"), Mesh(x=200), 129),
    ],
)
def test_a_notebook_shows_others_as_a_table(shape, spec, mesh, rows):
    drawn = drawing(shape, spec, mesh)
    assert drawn._repr_svg_() is None
    table = ElementTree.fromstring(drawn._repr_html_())
    assert table.find("caption").text == "title"
    heads = [cell.text for cell in table.findall("thead/tr/th")]
    assert heads == ["devices", *(f"axis {i}" for i in range(len(shape)))]
    lines = [[cell.text for cell in line] for line in table.findall("tbody/tr")]
    assert len(lines) == rows
    in_text = [re.split(r"  \[|, |\]", line.removeprefix("device "))[:-1] for line in str(drawn).splitlines()[1:]]
    for line, row in itertools.zip_longest(lines, in_text):
        assert line[0].startswith("…") or line == [row[0].strip(), *filter(None, row[1:])]


def test_text_is_escaped():
    title = "<script>alert('&')</script>"
    for shape, read in ((3,), "_repr_svg_"), ((3, 3, 3), "_repr_html_"):
        shown = getattr(drawing(shape, P(), Mesh(x=1), title=title), read)()
        assert "<script" not in shown
        assert title in {element.text for element in ElementTree.fromstring(shown).iter()}


def test_a_drawing_is_printed_in_ascii_where_standard_output_has_nothing_else(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    shown = drawing((8, 6), P("a", "b"), AB, title="2 × 4")
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", output)
        print(shown)  # noqa: T201
        output.flush()
    printed = output.buffer.getvalue().decode("ascii")
    assert printed.splitlines()[:4] == ["2 x 4", "      0:3   3:6", "    +-----+-----+", "0:2 |  0  |  1  |"]
    assert str(shown).splitlines()[3] == "0:2 │  0  │  1  │"

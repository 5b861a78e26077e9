import pytest

from shardcall import Mesh, P
from shardcall.blocks import block_grid
from shardcall.drawing import draw

AB = Mesh(a=4, b=2)

DRAWINGS = {
    "both axes split": (
        (8, 6),
        P("a", "b"),
        AB,
        """
      0:3   3:6
    ┌─────┬─────┐
0:2 │  0  │  1  │
    ├─────┼─────┤
2:4 │  2  │  3  │
    ├─────┼─────┤
4:6 │  4  │  5  │
    ├─────┼─────┤
6:8 │  6  │  7  │
    └─────┴─────┘
""",
    ),
    "both axes split, the other way": (
        (8, 8),
        P("b", "a"),
        AB,
        """
      0:2   2:4   4:6   6:8
    ┌─────┬─────┬─────┬─────┐
0:4 │  0  │  2  │  4  │  6  │
    ├─────┼─────┼─────┼─────┤
4:8 │  1  │  3  │  5  │  7  │
    └─────┴─────┴─────┴─────┘
""",
    ),
    "replicated over b": (
        (8, 8),
        P("a", None),
        AB,
        """
      0:8
    ┌─────┐
0:2 │ 0,1 │
    ├─────┤
2:4 │ 2,3 │
    ├─────┤
4:6 │ 4,5 │
    ├─────┤
6:8 │ 6,7 │
    └─────┘
""",
    ),
    "rows over both axes": (
        (4, 2),
        P(("a", "b"), None),
        Mesh(a=2, b=2),
        """
      0:2
    ┌─────┐
0:1 │  0  │
    ├─────┤
1:2 │  1  │
    ├─────┤
2:3 │  2  │
    ├─────┤
3:4 │  3  │
    └─────┘
""",
    ),
    "one device": (
        (8, 8),
        P("x", None),
        Mesh(x=1),
        """
      0:8
    ┌─────┐
0:8 │  0  │
    └─────┘
""",
    ),
    "devices in an order of their own": (
        (8,),
        P("x"),
        Mesh(x=4, device_ids=[3, 2, 1, 0]),
        """
  0:2   2:4   4:6   6:8
┌─────┬─────┬─────┬─────┐
│  3  │  2  │  1  │  0  │
└─────┴─────┴─────┴─────┘
""",
    ),
    "a size that does not divide": (
        (5,),
        P("x"),
        Mesh(x=4),
        """
  0:2   2:4   4:5   5:5
┌─────┬─────┬─────┬─────┐
│  0  │  1  │  2  │  3  │
└─────┴─────┴─────┴─────┘
""",
    ),
    "replicated on more than eight": (
        (5,),
        P(),
        Mesh(x=16),
        """
       0:5
┌───────────────┐
│ 0,1,…,15 (16) │
└───────────────┘
""",
    ),
    "rank 0": ((), P(), Mesh(x=2), "\ndevice 0,1  []\n"),
    "rank 3": (
        (4, 5, 6),
        P("a", None, "b"),
        Mesh(a=2, b=2),
        """
device 0  [0:2, 0:5, 0:3]
device 1  [0:2, 0:5, 3:6]
device 2  [2:4, 0:5, 0:3]
device 3  [2:4, 0:5, 3:6]
""",
    ),
}


@pytest.mark.parametrize(("shape", "spec", "mesh", "expected"), DRAWINGS.values(), ids=DRAWINGS)
def test_drawings(shape, spec, mesh, expected):
    assert draw(block_grid(shape, spec, mesh)) == expected.strip("\n")


def test_what_is_too_wide_for_boxes_becomes_a_table():
    lines = draw(block_grid((64, 64), P(None, "x"), Mesh(x=64))).splitlines()
    assert len(lines) == 64
    assert lines[63] == "device 63  [0:64, 63:64]"

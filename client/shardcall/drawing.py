"""Text drawings of the blocks of an array."""

from __future__ import annotations

from shardcall.blocks import BlockGrid

_WIDEST = 110
_MOST_NAMED = 8


def draw(grid: BlockGrid) -> str:
    """Returns a drawing: boxes for rank 1 and 2, a table of blocks for others and for what is too wide.

    Each box names the devices that hold the block, several where it is replicated; the indices along the
    edges are those of the caller's array, without padding.
    """
    if len(grid.shape) in (1, 2):
        boxes = _boxes(grid)
        if len(boxes[-1]) <= _WIDEST:
            return "\n".join(line.rstrip() for line in boxes)
    return "\n".join(_table(grid))


def _boxes(grid: BlockGrid) -> list[str]:
    columns_axis = len(grid.shape) - 1
    columns = [_span(grid, columns_axis, i) for i in range(grid.counts[columns_axis])]
    rows = [_span(grid, 0, i) for i in range(grid.counts[0])] if columns_axis else [""]
    cells = [
        [_devices(grid.holders[(r, c) if columns_axis else (c,)]) for c in range(len(columns))]
        for r in range(len(rows))
    ]
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
    return [*lines, rule("└", "┴", "┘")]


def _table(grid: BlockGrid) -> list[str]:
    rows = [
        (_devices(devices), ", ".join(_span(grid, axis, i) for axis, i in enumerate(block)))
        for block, devices in grid.holders.items()
    ]
    width = max(len(devices) for devices, _ in rows)
    return [f"device {devices:<{width}}  [{spans}]" for devices, spans in rows]


def _span(grid: BlockGrid, axis: int, index: int) -> str:
    return "{}:{}".format(*grid.span(axis, index))


def _devices(ids: tuple[int, ...]) -> str:
    if len(ids) <= _MOST_NAMED:
        return ",".join(map(str, ids))
    return f"{ids[0]},{ids[1]},…,{ids[-1]} ({len(ids)})"

"""Blocks get the rows of other blocks that they need, for every boundary mode, and functions that move rows do so."""

import itertools

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from kernels.conftest import KERNELS, assert_same_bits
from kernels.table_cases import expected

from shardcall_core.layouts.layout import MeshAxes
from shardcall_server.kernels.stencils.exchange import (
    Exchange,
    ShardedAxis,
    behind,
    fill,
    rows_after,
    rows_before,
    written,
)

MODES = {"zero": "constant", "periodic": "wrap", "edge": "edge"}
CASES = [  # devices, rows, before, after
    (8, 64, 1, 1),
    (8, 61, 2, 3),
    (8, 57, 1, 2),  # the last block holds one row
    (8, 50, 1, 9),  # the last holds none, and two blocks on each side are needed
    (8, 9, 3, 5),  # most blocks hold none
    (4, 7, 9, 8),  # more is needed than there is
    (2, 6, 1, 1),  # the neighbours on both sides are the same
    (1, 5, 2, 3),
]
SHORT = [
    *zip(itertools.cycle(MODES), CASES, strict=False),
    ("periodic", (8, 57, 1, 2)),
    ("edge", (8, 57, 1, 2)),
    ("edge", (8, 9, 3, 5)),
]


def along_rows(devices, rows):
    return ShardedAxis(0, ("x",), MeshAxes((("x", devices),)), rows, -(-rows // devices))


def on_blocks(body, x, along):
    """Runs a body on the blocks of x, whose padding holds NaN; returns its results [D, …] and the compiled text."""
    mesh = jax.make_mesh((along.devices,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("x")
    with np.errstate(invalid="ignore"):
        padding = np.full((along.devices * along.block - len(x), *x.shape[1:]), np.nan).astype(x.dtype)
    placed = jax.device_put(np.concatenate([x, padding]), NamedSharding(mesh, spec))
    mapped = jax.shard_map(lambda block: body(block)[None], mesh=mesh, in_specs=spec, out_specs=spec)
    compiled = jax.jit(mapped).lower(placed).compile()
    return np.asarray(compiled(placed)), compiled.as_text()


def check(same, devices, rows, before, after, boundary, dtype="float32"):
    along = along_rows(devices, rows)
    x = np.arange(1, 2 * rows + 1).reshape(rows, 2).astype(dtype)

    def extended(block):
        left, right = rows_before(along, before, boundary)(block), rows_after(along, after, boundary)(block)
        filled = fill(block, along, boundary)
        if boundary == "periodic":
            filled = written(filled, right, along)
        return jax.numpy.concatenate([left, filled, behind(right, along)])

    results, _ = on_blocks(extended, x, along)
    padded = np.pad(x, ((before, after), (0, 0)), MODES[boundary])
    for device, result in enumerate(results):
        if held := along.held(device):
            start, count = device * along.block, before + held + after
            same(result[:count], padded[start : start + count])


@pytest.mark.parametrize(("boundary", "case"), SHORT)
def test_blocks_are_extended_as_np_pad_extends_the_array(same, boundary, case):
    check(same, *case, boundary)


def test_any_window_is_served(same):
    along = along_rows(8, 61)
    x = np.arange(122.0).reshape(61, 2)
    windows = [(50, 58), (0, 0), (-3, 2), (60, 64), (8, 16), (7, 9), (0, 8), (0, 0)]
    results, _ = on_blocks(Exchange.of(along, windows, "periodic"), x, along)
    for (start, stop), result in zip(windows, results, strict=True):
        same(result[: stop - start], x[np.arange(start, stop) % 61])


def test_outside_of_none_is_of_no_account():
    assert rows_before(along_rows(8, 64), 3, "none").is_direct
    assert rows_after(along_rows(8, 61), 3, "none").is_direct


@pytest.mark.parametrize(
    ("devices", "rows", "count", "boundary", "lengths"),
    [
        (8, 64, 20, "zero", [8, 8, 4]),
        (8, 64, 1, "edge", [1, 1]),  # a block's own first row, and the neighbour's last
        (8, 57, 4, "periodic", [4, 3]),  # the last block holds one row, so the rows before row 0 are of two
        (2, 6, 1, "periodic", [1]),
        (1, 6, 4, "zero", []),
    ],
)
def test_every_distance_takes_the_rows_it_must(devices, rows, count, boundary, lengths):
    exchange = rows_before(along_rows(devices, rows), count, boundary)
    assert sorted((permute.length for permute in exchange.permutes), reverse=True) == lengths


def test_blocks_of_an_unsharded_axis_send_nothing():
    along = along_rows(1, 6)
    for boundary in MODES:
        for exchange in (rows_before(along, 2, boundary), rows_after(along, 2, boundary)):
            _, text = on_blocks(exchange, np.zeros((6, 3), np.float32), along)
            assert "collective-permute" not in text


ROW_LAYOUTS = [({"x": 8}, ("x",)), ({"x": 3}, ("x",)), ({"a": 4, "b": 2}, (("b", "a"),))]
ROWS = (61,)
ROW_CASES = [
    ("flip", (ROWS,), {}),
    ("flip", ((64, 3),), {"axis": 0}),
    ("concatenate", (ROWS, ROWS), {}),
    ("concatenate", ((61, 3), (2, 3), (0, 3), (5, 3)), {}),
    ("concatenate", ((3,), ROWS, (90,)), {}),
    ("pad", (ROWS, ()), {"pad_width": (2, 1)}),
    ("pad", (ROWS, None), {"pad_width": (40, 90)}),
    ("pad", ((61, 3), None), {"pad_width": (1, 9, 2, 2), "mode": "edge"}),
    ("pad", ((61, 3), None), {"pad_width": (20, 3, 1, 0), "mode": "wrap"}),
    ("pad", (ROWS, None), {"pad_width": (60, 1), "mode": "reflect"}),
    ("pad", (ROWS, None), {"pad_width": (0, 61), "mode": "symmetric"}),
    ("repeat", (ROWS,), {"repeats": 3, "axis": 0}),
    ("repeat", ((5, 3),), {"repeats": 7, "axis": 0}),
    ("reshape", ((61, 6),), {"shape": (366,)}),
    ("reshape", ((366,),), {"shape": (61, 2, 3)}),
    ("reshape", ((62, 4),), {"shape": (31, 8)}),
    ("diagonal", ((61, 40),), {"offset": 3}),
    ("diagonal", ((3, 61, 40),), {"offset": -2, "axis1": 2, "axis2": 0}),
]


def exchanged(run, values, number, layout):
    """A call that exchanges rows, and NumPy's result."""
    (name, shapes, parameters), (mesh, spec) = ROW_CASES[number], ROW_LAYOUTS[layout]
    operands = tuple(None if shape is None else values.normal(shape) for shape in shapes)
    specs = [None if shape is None else [*spec, *[None] * len(shape)][: len(shape)] for shape in shapes]
    how = {"mesh": mesh, "in_specs": specs, **parameters}
    assert run.resolve(KERNELS[name], *operands, **how).strategy.name in ("exchange", "all_to_all")
    return run.call(KERNELS[name], *operands, **how), expected(name, operands, parameters)


def taken(run, values, layout):
    """Calls that fetch few rows, and NumPy's results."""
    (mesh, spec), x, calls = ROW_LAYOUTS[layout], values.normal((61, 3)), []
    how = {"mesh": mesh, "in_specs": [(*spec, None), None], "axis": 0}
    for indices in (-3, [5, -61, 60, 5], [[0], [33]]):
        where = np.asarray(indices)
        calls.append(("take", where, np.asarray(np.take(x, where, 0))))
    along = np.broadcast_to(where, (2, 3))
    calls.append(("take_along_axis", along, np.take_along_axis(x, along, 0)))
    for name, where, result in calls:
        assert run.resolve(KERNELS[name], x, where, **how).strategy.name == "exchange"
        yield run.call(KERNELS[name], x, where, **how), result


def test_rows_are_exchanged(run, values):
    """Each call in another layout."""
    calls = [exchanged(run, values, i, i % len(ROW_LAYOUTS)) for i in range(len(ROW_CASES))]
    run.check_together([*calls, *taken(run, values, 2)], assert_same_bits, 7)

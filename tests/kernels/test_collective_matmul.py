"""`collective_matmul` is np.matmul by every strategy, for every layout it serves, on every mesh.

Products of float64 are compared with NumPy's: two sums of K products, in any order, differ by at most
2 · K · eps · (|lhs| @ |rhs|).
"""

import itertools

import numpy as np
import pytest

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.products.collective_matmul import CollectiveMatMul

KERNEL = CollectiveMatMul()
GATHER_STRATEGIES = ["all_gather", "ring", "bidirectional_ring"]
SCATTER_STRATEGIES = ["psum_scatter", "psum_scatter_ring", "psum_scatter_bidirectional_ring"]
BY_ROWS, BY_COLUMNS, UNSHARDED = ("x", None), (None, "x"), (None, None)
GATHERED = [  # lhs, rhs, result
    (BY_ROWS, UNSHARDED, UNSHARDED),
    (BY_ROWS, BY_COLUMNS, BY_COLUMNS),
    (BY_ROWS, BY_COLUMNS, BY_ROWS),
    (UNSHARDED, BY_COLUMNS, UNSHARDED),
    (BY_COLUMNS, UNSHARDED, UNSHARDED),
    (BY_COLUMNS, BY_COLUMNS, BY_COLUMNS),
    (UNSHARDED, BY_ROWS, UNSHARDED),
    (BY_ROWS, BY_ROWS, BY_ROWS),
]
SCATTERED = [(BY_COLUMNS, BY_ROWS, BY_ROWS), (BY_COLUMNS, BY_ROWS, BY_COLUMNS)]


def cases(gathered, scattered):
    """Every layout with every strategy that serves it."""
    return [*itertools.product(gathered, GATHER_STRATEGIES), *itertools.product(scattered, SCATTER_STRATEGIES)]


def short_and_complete(table, every):
    return [pytest.param(*row, marks=() if i % every == 0 else pytest.mark.long) for i, row in enumerate(table)]


def how(layout, strategy, mesh):
    *in_specs, out_spec = layout
    return {"in_specs": in_specs, "out_specs": [out_spec], "strategy": strategy, "mesh": mesh, "axis_name": "x"}


def assert_near(actual, lhs, rhs):
    """Checks a product within the tolerance that the module docstring states."""
    expected = lhs @ rhs
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    bound = 2 * max(lhs.shape[1], 1) * np.finfo(actual.dtype).eps * (np.abs(lhs) @ np.abs(rhs))
    assert (np.abs(actual - expected) <= bound).all()


@pytest.mark.parametrize(("layout", "strategy"), short_and_complete(cases(GATHERED, SCATTERED), every=5), ids=str)
def test_every_layout_by_every_strategy(run, values, layout, strategy):
    lhs, rhs = values.normal((9, 11), float), values.normal((11, 7), float)
    assert_near(run(KERNEL, lhs, rhs, padding=np.nan, **how(layout, strategy, {"x": 4})), lhs, rhs)


@pytest.mark.parametrize(
    ("strategy", "layout", "sends"),
    [
        ("ring", GATHERED[1], 3),
        ("bidirectional_ring", GATHERED[1], 6),
        ("ring", GATHERED[5], 1),
        ("psum_scatter_bidirectional_ring", SCATTERED[0], 2),
    ],
)
def test_rings_that_add_up_are_loops_and_others_are_written_out(run, strategy, layout, sends):
    types = [ArrayType((8, 8), np.dtype(np.float32))] * 2
    text = run.program(KERNEL, *types, **how(layout, strategy, {"x": 4})).text
    assert text.count(" collective-permute(") == sends
    assert (" while(" in text) == (sends < 3)

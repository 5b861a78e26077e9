"""`collective_matmul` is np.matmul by every strategy, for every layout it serves, on every mesh.

Products of float64 are compared with NumPy's: two sums of K products, in any order, differ by at most
2 · K · eps · (|lhs| @ |rhs|).
"""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
OTHER_AXES = [  # lhs, rhs, result; None for what follows from the operands
    (("x", "y"), ("y", None), UNSHARDED),
    (("x", "y"), ("y", "x"), (None, "x")),
    (("x", "y"), ("y", "x"), ("x", None)),
    (("x", None), (None, "y"), (None, "y")),
    ((("y", "x"), None), UNSHARDED, ("y", None)),
    ((("y", "x"), None), (None, "x"), ("y", "x")),
    (("y", "x"), (None, "x"), ("y", "x")),
    ((None, ("y", "x")), ("y", "x"), (None, "x")),
    (("x", None), ("x", "y"), ("x", "y")),
    (("y", None), ("x", None), ("y", None)),
    (("x", "y"), (("y", "x"), None), ("x", None)),
    (("y", None), (None, "x"), ("y", None)),
    (UNSHARDED, (None, ("y", "x")), (None, "y")),
]
OTHER_AXES_OF_SUMS = [
    (("y", "x"), ("x", None), (("y", "x"), None)),
    (("y", "x"), ("x", None), ("y", "x")),
    ((None, ("y", "x")), (("y", "x"), None), BY_ROWS),
    ((None, ("x", "y")), (("x", "y"), None), BY_COLUMNS),
    ((None, "x"), ("x", "y"), ("x", "y")),
    ((None, "x"), ("x", "y"), (None, ("y", "x"))),
]
MESHES = [{"x": 2, "y": 4}, {"y": 2, "x": 3}, {"x": 4, "y": 2}]
SIZES = [1, 7, 8, 9, 64, 1000]
SHAPES = [*zip(SIZES, SIZES[1:] + SIZES[:1], SIZES[2:] + SIZES[:2], strict=True)]  # each size along each axis


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
    ("case", "mesh"),
    short_and_complete([*itertools.product(cases(OTHER_AXES, OTHER_AXES_OF_SUMS), MESHES)], every=43),
    ids=str,
)
def test_other_mesh_axes_may_shard_the_other_axes(run, values, case, mesh):
    lhs, rhs = values.normal((13, 10), float), values.normal((10, 11), float)
    assert_near(run(KERNEL, lhs, rhs, padding=np.nan, **how(*case, mesh)), lhs, rhs)


@pytest.mark.long
@pytest.mark.parametrize("devices", range(1, 9))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("strategy", GATHER_STRATEGIES + SCATTER_STRATEGIES)
def test_sizes_that_the_mesh_does_not_divide(run, values, strategy, shape, devices):
    layouts = GATHERED if strategy in GATHER_STRATEGIES else SCATTERED
    layout = layouts[(devices + SHAPES.index(shape)) % len(layouts)]
    (m, k, n) = shape
    lhs, rhs = values.normal((m, k), float), values.normal((k, n), float)
    assert_near(run(KERNEL, lhs, rhs, padding=np.nan, **how(layout, strategy, {"x": devices})), lhs, rhs)


@pytest.mark.long
@pytest.mark.parametrize(
    ("layout", "strategy", "mesh"),
    [
        ((BY_ROWS, BY_ROWS, BY_ROWS), "bidirectional_ring", {"x": 3}),
        (((None, ("y", "x")), ("y", "x"), (None, "x")), "ring", {"x": 2, "y": 2}),
        ((("x", "y"), ("y", "x"), (None, "x")), "all_gather", {"x": 2, "y": 2}),
        ((("x", "y"), ("y", "x"), ("x", None)), "bidirectional_ring", {"x": 2, "y": 2}),
        (((None, ("y", "x")), (("y", "x"), None), BY_COLUMNS), "psum_scatter_bidirectional_ring", {"x": 2, "y": 2}),
    ],
)
def test_every_element_type(run, values, same, dtype, layout, strategy, mesh):
    lhs, rhs = values.small((7, 9), dtype), values.small((9, 5), dtype)
    wide = np.complex128 if dtype.kind == "c" else dtype if dtype == np.bool_ else np.int64
    expected = (lhs.astype(wide) @ rhs.astype(wide)).astype(dtype)
    same(run(KERNEL, lhs, rhs, **how(layout, strategy, mesh)), expected)


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=st.sampled_from(cases(GATHERED, SCATTERED)),
    devices=st.integers(1, 8),
    shape=st.tuples(*[st.integers(0, 20)] * 3),
)
def test_integer_values_are_exact_on_every_mesh(run, same, case, devices, shape):
    run.programs.clear()
    (m, k, n), random = shape, np.random.default_rng(0)
    lhs, rhs = random.integers(-9, 9, (m, k)).astype(float), random.integers(-9, 9, (k, n)).astype(float)
    same(run(KERNEL, lhs, rhs, padding=np.nan, **how(*case, {"x": devices})), lhs @ rhs)


@pytest.mark.parametrize(
    ("layout", "strategy"),
    [
        pytest.param(layout, strategy, marks=() if layout in short else pytest.mark.long)
        for short in [[GATHERED[1], SCATTERED[0]]]
        for layout, strategy in cases(GATHERED, SCATTERED)
    ],
    ids=str,
)
def test_rings_never_hold_what_is_gathered_or_summed(run, layout, strategy):
    """Temporary memory of a device: one collective holds the complete operand, a ring at most half on 8 devices."""
    travels_wide = layout in SCATTERED
    m, k, n = (512, 16, 512) if travels_wide else (512, 512, 32) if _travels_lhs(layout) else (32, 512, 512)
    lhs, rhs = ArrayType((m, k), np.dtype(np.float32)), ArrayType((k, n), np.dtype(np.float32))
    full_bytes = 512 * 512 * 4
    program = run.program(KERNEL, lhs, rhs, **how(layout, strategy, {"x": 8}))
    temp_bytes = program.compiled.memory_analysis().temp_size_in_bytes
    if "ring" in strategy:
        assert 0 < temp_bytes < full_bytes / 2
        assert not any(word in program.text for word in ("all-gather", "all-reduce", "all-to-all", "reduce-scatter"))
    elif layout not in (GATHERED[0], GATHERED[3]):  # of these the products are gathered
        assert temp_bytes >= full_bytes


def _travels_lhs(layout):
    lhs, _, result = layout
    return lhs == BY_COLUMNS or (lhs == BY_ROWS and result != BY_ROWS)


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

"""The tests of `test_collective_matmul.py` that take long."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.test_collective_matmul import (
    BY_COLUMNS,
    BY_ROWS,
    GATHER_STRATEGIES,
    GATHERED,
    KERNEL,
    SCATTER_STRATEGIES,
    SCATTERED,
    UNSHARDED,
    assert_near,
    cases,
    how,
    short_and_complete,
)

from shardcall_core.layouts.layout import ArrayType

pytestmark = pytest.mark.long

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


@pytest.mark.parametrize(
    ("case", "mesh"),
    short_and_complete([*itertools.product(cases(OTHER_AXES, OTHER_AXES_OF_SUMS), MESHES)], every=43),
    ids=str,
)
def test_other_mesh_axes_may_shard_the_other_axes(run, values, case, mesh):
    lhs, rhs = values.normal((13, 10), float), values.normal((10, 11), float)
    assert_near(run(KERNEL, lhs, rhs, padding=np.nan, **how(*case, mesh)), lhs, rhs)


@pytest.mark.parametrize("devices", range(1, 9))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("strategy", GATHER_STRATEGIES + SCATTER_STRATEGIES)
def test_sizes_that_the_mesh_does_not_divide(run, values, strategy, shape, devices):
    layouts = GATHERED if strategy in GATHER_STRATEGIES else SCATTERED
    layout = layouts[(devices + SHAPES.index(shape)) % len(layouts)]
    (m, k, n) = shape
    lhs, rhs = values.normal((m, k), float), values.normal((k, n), float)
    assert_near(run(KERNEL, lhs, rhs, padding=np.nan, **how(layout, strategy, {"x": devices})), lhs, rhs)


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

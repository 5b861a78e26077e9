"""`matmul` and `collective_matmul` are np.matmul on every mesh, however the operands are sharded.

Float products are compared with a float64 product. Each of K products and K - 1 additions rounds by at most half an
eps of the type that is summed up in, in any order: |error| ≤ K · eps · (|lhs| @ |rhs|), and the conversion to a
narrower result adds eps of that type, or half of its smallest subnormal.
"""

import itertools

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import pairs_of

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.products import block_products
from shardcall_server.kernels.products.collective_matmul import CollectiveMatMul
from shardcall_server.kernels.products.matmul import MatMul

MATMUL = MatMul()
COLLECTIVE = CollectiveMatMul()
F32 = np.dtype(np.float32)
MESHES = [{"x": 1}, {"x": 8}, {"x": 4, "y": 2}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}]
BY_ROWS = ["all_gather", "ring", "bidirectional_ring"]
BY_COLUMNS = ["psum_scatter", "psum_scatter_ring"]
LAYOUTS = [  # lhs, rhs, result; None for unset
    (("x", None), None, None),
    (("x", None), (None, "y"), ("x", "y")),
    ((None, "x"), ("x", None), None),
    ((None, "x"), ("x", None), ()),
    ((None, "x"), ("x", None), (None, "x")),
    (("y", "x"), ("x", None), None),
    (("y", "x"), ("x", None), ("y", None)),
    ((("y", "x"), None), ("y", "x"), None),
    ((), (None, ("x", "y")), ()),
    ((None, ("y", "x")), (("y", "x"), None), None),
    ((None, "x"), ("y", None), ("y", "x")),
]
SIZES = [(16, 16, 16), (11, 13, 5)]


def on(mesh, spec):
    """The spec without the axes that the mesh lacks."""
    if spec is None:
        return None
    keep = [tuple(n for n in ((e,) if isinstance(e, str) else e or ()) if n in mesh) for e in spec]
    return tuple(keep)


def exact(lhs, rhs, dtype):
    """The product of small integers, wrapped to the result's type."""
    if dtype == np.bool_:
        return lhs @ rhs
    if dtype.kind == "c":
        return (lhs.astype(np.complex128) @ rhs.astype(np.complex128)).astype(dtype)
    return (lhs.astype(np.int64) @ rhs.astype(np.int64)).astype(dtype)


def assert_near(actual, lhs, rhs):
    """Checks a product within the tolerance that the module docstring states."""
    wide, dtype = np.float64, actual.dtype
    expected = lhs.astype(wide) @ rhs.astype(wide)
    assert actual.shape == expected.shape
    summed = ml_dtypes.finfo(block_products.sum_type(dtype))
    bound = lhs.shape[-1] * float(summed.eps) * (np.abs(lhs.astype(wide)) @ np.abs(rhs.astype(wide)))
    if element_types.is_narrow_float(dtype):
        result = ml_dtypes.finfo(dtype)
        bound += float(result.eps) * np.abs(expected) + float(result.smallest_subnormal)
    error = np.abs(actual.astype(wide) - expected)
    assert (error <= bound).all(), f"off by {np.max(error - bound, initial=0)} more than {np.max(bound, initial=0)}"


def short_and_complete(table, every):
    return [pytest.param(*row, marks=() if i % every == 0 else pytest.mark.long) for i, row in enumerate(table)]


@pytest.mark.parametrize(
    ("mesh", "layout", "size"), short_and_complete([*itertools.product(MESHES, LAYOUTS, SIZES)], every=5)
)
def test_matmul_serves_every_layout(run, values, mesh, layout, size):
    m, k, n = size
    lhs, rhs = values.normal((m, k)), values.normal((k, n))
    *in_specs, out_spec = (on(mesh, spec) for spec in layout)
    how = {"mesh": mesh, "in_specs": in_specs, "out_specs": [out_spec]}
    assert_near(run(MATMUL, lhs, rhs, padding=np.nan, **how), lhs, rhs)


@pytest.mark.parametrize(
    ("size", "names", "strategy"), pairs_of(SIZES, ["x", ("x", "y"), ("y", "x")], ["gspmd", "psum", "psum_scatter"])
)
def test_matmul_strategies_for_a_sharded_contracting_axis(run, values, size, names, strategy):
    m, k, n = size
    lhs, rhs = values.normal((m, k)), values.normal((k, n))
    how = {"mesh": {"x": 4, "y": 2}, "in_specs": [(None, names), (names, None)], "strategy": strategy}
    assert_near(run(MATMUL, lhs, rhs, padding=np.nan, **how), lhs, rhs)


@pytest.mark.parametrize(
    ("of_lhs", "of_rhs"), [("int8", "uint8"), ("int8", "bfloat16"), ("bool", "int4"), ("uint64", "int64")]
)
def test_operands_of_two_types_meet_in_numpys(run, values, same, of_lhs, of_rhs):
    of_lhs, of_rhs = (np.dtype(getattr(ml_dtypes, name, name)) for name in (of_lhs, of_rhs))
    lhs, rhs = values.small((9, 11), of_lhs), values.small((11, 6), of_rhs)
    same(run(MATMUL, lhs, rhs, mesh={"x": 8}), exact(lhs, rhs, np.result_type(of_lhs, of_rhs)))


@pytest.mark.parametrize(
    ("spec", "shapes"), pairs_of(["x", None], [((11,), (11,)), ((11,), (11, 3)), ((9, 11), (11,))])
)
def test_vectors(run, values, shapes, spec):
    left, right = shapes
    lhs, rhs = values.normal(left), values.normal(right)
    in_specs = [((None,) * (len(left) - 1) + (spec,)), (spec,)]
    assert_near(run(MATMUL, lhs, rhs, mesh={"x": 8}, in_specs=in_specs, padding=np.nan), lhs, rhs)


SMALL = st.integers(-1000, 1000).map(float)


@pytest.mark.parametrize("strategy", BY_ROWS + BY_COLUMNS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lhs=hnp.arrays(np.float64, (13, 6), elements=SMALL), rhs=hnp.arrays(np.float64, (6, 3), elements=SMALL))
def test_integer_values_are_exact_whatever_the_order(run, same, strategy, lhs, rhs):
    same(run(COLLECTIVE, lhs, rhs, mesh={"x": 4}, axis_name="x", strategy=strategy), lhs @ rhs + 0.0)


@pytest.mark.parametrize("strategy", ["ring", "bidirectional_ring"])
def test_rings_only_pass_on(run, strategy):
    lhs, rhs = ArrayType((32, 16), F32), ArrayType((16, 8), F32)
    text = run.program(COLLECTIVE, lhs, rhs, mesh={"x": 4}, axis_name="x", strategy=strategy).compiled.as_text()
    sends = 3 * (2 if strategy == "bidirectional_ring" else 1)
    assert text.count(" collective-permute(") == sends
    assert not any(word in text for word in ("all-gather", "all-to-all", "all-reduce", "reduce-scatter"))


def test_gathered_products_leave_every_device_its_rows(run):
    lhs, rhs = ArrayType((32, 16), F32), ArrayType((16, 8), F32)
    text = run.program(COLLECTIVE, lhs, rhs, mesh={"x": 4}, axis_name="x").compiled.as_text()
    assert "f32[8,8]{1,0} dot(" in text
    assert text.count(" all-gather(") == 1


@pytest.mark.parametrize(("rows", "columns"), [(8, 4), (7, 5), (1, 1), (3, 9)])
def test_psum_scatter_leaves_every_device_its_columns_if_asked(run, rows, columns):
    generator = np.random.default_rng(rows)
    lhs, rhs = generator.standard_normal((rows, 16)), generator.standard_normal((16, columns))
    layout = {"mesh": {"x": 2, "y": 4}, "in_specs": [("x", "y"), ("y", None)], "out_specs": [("x", "y")]}
    np.testing.assert_allclose(
        run(MATMUL, lhs, rhs, strategy="psum_scatter", **layout), lhs @ rhs, rtol=1e-13, atol=1e-13
    )
    types = ArrayType(lhs.shape, lhs.dtype), ArrayType(rhs.shape, rhs.dtype)
    text = run.program(MATMUL, *types, strategy="psum_scatter", **layout).compiled.as_text()
    assert "reduce-scatter" in text
    assert "all-reduce" not in text


def test_rows_by_columns_moves_nothing(run):
    lhs, rhs = ArrayType((32, 16), F32), ArrayType((16, 8), F32)
    text = run.program(MATMUL, lhs, rhs, mesh={"x": 4, "y": 2}, out_specs=[("x", "y")]).compiled.as_text()
    assert not any(word in text for word in ("collective-permute", "all-gather", "all-to-all", "all-reduce"))


@pytest.mark.parametrize(
    ("in_specs", "out_spec", "chosen", "spec_of_result"),
    [
        ([("x", None), (None, "y")], None, "gspmd", (("x",), ("y",))),
        ([(None, "x"), ("x", None)], None, "psum_scatter", (("x",), ())),
        ([(None, "x"), ("x", None)], (), "psum", ((), ())),
        ([(None, "x"), ("x", "y")], (None, "y"), "psum", ((), ("y",))),
        ([(None, "x"), ("x", None)], (None, "x"), "psum_scatter", ((), ("x",))),
        ([(None, "x"), ("x", None)], ("y", "x"), "all_gather", (("y",), ("x",))),
        ([(None, "x"), (None, "x")], None, "all_gather", ((), ("x",))),
        ([("y", "x"), ("x", None)], None, "psum_scatter", (("y", "x"), ())),
        ([("y", "x"), ("x", "y")], None, "reshard", (("y", "x"), ())),
    ],
)
def test_auto_sums_where_the_contracting_axis_is_sharded(run, in_specs, out_spec, chosen, spec_of_result):
    lhs = rhs = ArrayType((16, 16), F32)
    how = {"mesh": {"x": 4, "y": 2}, "in_specs": in_specs, "out_specs": [out_spec]}
    resolved = run.resolve(MATMUL, lhs, rhs, **how)
    assert (resolved.strategy.name, resolved.problem.out_specs) == (chosen, (spec_of_result,))


@pytest.mark.parametrize(
    ("sizes", "in_specs", "out_spec", "chosen", "spec_of_result"),
    [
        ((8, 3000, 2000), [("x",), ("x",)], None, "reshard", (("x",), ())),
        ((8, 3000, 2000), [("x",), ("x",)], (None, "x"), "reshard", ((), ("x",))),
        ((8, 3000, 2000), [("x",), ("x",)], (), "reshard", ((), ())),
        ((8, 3000, 2000), [("x",), (None, "x")], None, "reshard", ((), ("x",))),
        ((8, 3000, 2000), [("x",), (None, "x")], ("x",), "all_gather", (("x",), ())),
        ((8, 3000, 2000), [(), ("x",)], None, "reshard", (("x",), ())),
        ((8, 3000, 2000), [(None, "x"), ("x",)], None, "psum_scatter", (("x",), ())),
        ((1, 3000, 8), [(None, "x"), ("x",)], None, "psum", ((), ())),
        ((2000, 3000, 8), [("x",), ("x",)], None, "all_gather", (("x",), ())),
        ((2000, 8, 2000), [("x",), ("x",)], None, "all_gather", (("x",), ())),
        ((1024, 1024, 1024), [("x",), ("x",)], None, "all_gather", (("x",), ())),
        ((1024, 1024, 1024), [("x",), (None, "x")], None, "all_gather", (("x",), ())),
        ((1024, 1024, 1024), [("x",), ()], None, "gspmd", (("x",), ())),
    ],
)
def test_auto_sends_the_fewest_bytes(run, sizes, in_specs, out_spec, chosen, spec_of_result):
    m, k, n = sizes
    how = {"mesh": {"x": 8}, "in_specs": in_specs, "out_specs": [out_spec]}
    resolved = run.resolve(MATMUL, ArrayType((m, k), F32), ArrayType((k, n), F32), **how)
    assert (resolved.strategy.name, resolved.problem.out_specs) == (chosen, (spec_of_result,))


def test_a_small_operand_is_moved_and_a_large_one_stays(run):
    how = {"mesh": {"x": 8}, "in_specs": [("x",), ("x",)]}
    program = run.program(MATMUL, ArrayType((8, 3000), F32), ArrayType((3000, 2000), F32), **how)
    text = program.compiled.as_text()
    assert "all-gather" not in text
    assert "reduce-scatter" in text


def test_unset_specs(run):
    lhs = rhs = ArrayType((16, 16), F32)
    mesh = {"x": 4, "y": 2}
    assert run.resolve(MATMUL, lhs, rhs, mesh=mesh).problem.in_specs == ((("x",), ()), ((), ("y",)))
    by_rows, unsharded, by_columns = (("y",), ()), ((), ()), ((), ("y",))
    how = {"mesh": mesh, "axis_name": "y"}
    for strategy in [*BY_ROWS, "auto"]:
        problem = run.resolve(COLLECTIVE, lhs, rhs, strategy=strategy, **how).problem
        assert (problem.in_specs, problem.out_specs) == ((by_rows, unsharded), (unsharded,))
    for requested, strategy in [([], BY_COLUMNS[0]), ([], BY_COLUMNS[1]), ([(None, "y")], "auto")]:
        problem = run.resolve(COLLECTIVE, lhs, rhs, strategy=strategy, in_specs=requested, **how).problem
        assert (problem.in_specs, problem.out_specs) == ((by_columns, by_rows), (by_rows,))

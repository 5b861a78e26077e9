"""`matmul` and `collective_matmul` are np.matmul on every mesh, by every strategy that does not refuse a layout.

Products of small integers are exact. Float products are compared with a float64 product. Each of K products and K - 1
additions rounds by at most half an eps of the type that is summed up in, in any order:
|error| ≤ K · eps · (|lhs| @ |rhs|), and the conversion to a narrower result adds eps of that type, or half of its
smallest subnormal.
"""

import itertools
import re

import ml_dtypes
import numpy as np
import pytest
from kernels.conftest import KERNELS
from rows import rows

from shardcall_core.call_error import CallError
from shardcall_core.element_types import NAMED
from shardcall_core.layouts.layout import ArrayType, format_spec
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.products import block_products

MATMUL, COLLECTIVE = KERNELS["matmul"], KERNELS["collective_matmul"]
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
AB = {"a": 4, "b": 2}
MESHES = [AB, {"a": 2, "b": 4}, {"a": 8, "b": 1}]
SPECS = [(), ("a",), ("b",), (None, "a"), (None, "b"), ("a", "b"), ("b", "a"), (("a", "b"),), (None, ("b", "a"))]
SIZES = [(16, 16, 16), (11, 13, 5)]
LAYOUTS = [  # mesh, specs of lhs, rhs and the result, sizes; None for an unset spec
    (*combination, SIZES[i % 2])
    for i, combination in enumerate(itertools.product(MESHES, SPECS, SPECS, [None, *SPECS]))
]
OTHER_LAYOUTS = [
    ({"x": 1}, (None, "x"), ("x", None), None, SIZES[1]),
    *(({"x": 8}, (None, "x"), ("x", None), out_spec, size) for out_spec in (None, ()) for size in SIZES),
    ({"x": 2, "y": 2, "z": 2}, (("y", "x"), None), ("y", "x"), None, SIZES[1]),
    ({"x": 2, "y": 2, "z": 2}, (None, ("y", "x")), (("y", "x"), None), None, SIZES[1]),
    ({"x": 4, "y": 2}, (None, ("x", "y")), (("x", "y"), None), None, SIZES[0]),
    ({"x": 4, "y": 2}, (None, "x"), ("y", None), ("y", "x"), SIZES[1]),
]
COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
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


def serving(run, *operands, **how):
    """The explicit strategies that do not refuse."""
    able = []
    for strategy in MATMUL.strategies[1:]:
        try:
            run.resolve(MATMUL, *operands, strategy=strategy.name, **how)
        except CallError:
            continue
        able.append(strategy.name)
    return able


def of_every_strategy(run, lhs, rhs, **how):
    """Calls of matmul by each strategy that serves a layout, and the product."""
    product = np.matmul(lhs, rhs) + 0.0
    strategies = ["gspmd", *serving(run, lhs, rhs, **how)]
    return [(run.call(MATMUL, lhs, rhs, strategy=strategy, **how), product) for strategy in strategies]


def check_layouts(run, values, layouts):
    cases = []
    for mesh, lhs_spec, rhs_spec, out_spec, (m, k, n) in layouts:
        how = {"mesh": mesh, "in_specs": [lhs_spec, rhs_spec], "out_specs": [out_spec]}
        cases += of_every_strategy(run, values.small((m, k), F64), values.small((k, n), F64), **how)
    run.check_together(cases, padding=np.nan)


def collective_cases(gathered, scattered):
    """Every layout with every strategy that serves it."""
    return [*itertools.product(gathered, GATHER_STRATEGIES), *itertools.product(scattered, SCATTER_STRATEGIES)]


def collective(layout, strategy, mesh):
    *in_specs, out_spec = layout
    return {"in_specs": in_specs, "out_specs": [out_spec], "strategy": strategy, "mesh": mesh, "axis_name": "x"}


def exact(lhs, rhs, dtype=None):
    """The product of small integers, wrapped to the result's type."""
    dtype = np.result_type(lhs, rhs) if dtype is None else dtype
    wide = np.bool_ if dtype == np.bool_ else np.complex128 if dtype.kind == "c" else np.int64
    return (lhs.astype(wide) @ rhs.astype(wide)).astype(dtype)


def assert_near(actual, operands):
    """Checks a product within the tolerance that the module docstring states."""
    dtype, (lhs, rhs) = actual.dtype, (operand.astype(np.float64) for operand in operands)
    expected = lhs @ rhs
    assert actual.shape == expected.shape
    bound = lhs.shape[-1] * float(ml_dtypes.finfo(block_products.sum_type(dtype)).eps) * (np.abs(lhs) @ np.abs(rhs))
    if element_types.is_narrow_float(dtype):
        result = ml_dtypes.finfo(dtype)
        bound += float(result.eps) * np.abs(expected) + float(result.smallest_subnormal)
    error = np.abs(actual.astype(np.float64) - expected)
    assert (error <= bound).all(), f"off by {np.max(error - bound, initial=0)} more than {np.max(bound, initial=0)}"


def near(run, kernel, *operands, **how):
    """A call, and what `assert_near` compares its result with."""
    return run.call(kernel, *operands, **how), operands


def test_every_strategy_that_serves_a_layout_is_right(run, values):
    check_layouts(run, values, [*LAYOUTS[::197], *OTHER_LAYOUTS])


def test_collective_products_are_right_by_every_strategy(run, values):
    cases = collective_cases(GATHERED, SCATTERED)
    lhs, rhs = values.normal((9, 11), F64), values.normal((11, 7), F64)
    calls = [near(run, COLLECTIVE, lhs, rhs, **collective(*case, {"x": 4})) for case in (*cases[::4], cases[-1])]
    run.check_together(calls, assert_near, np.nan)


def test_floats_are_within_the_stated_bound_whatever_is_summed_first(run, values):
    cases = []
    for (m, k, n), names in itertools.product(SIZES, ["x", ("x", "y"), ("y", "x")]):
        how = {"mesh": {"x": 4, "y": 2}, "in_specs": [(None, names), (names, None)]}
        operands = values.normal((m, k)), values.normal((k, n))
        cases += [near(run, MATMUL, *operands, strategy=s, **how) for s in ("gspmd", "psum", "psum_scatter")]
    for left, right in (((11,), (11,)), ((11,), (11, 3)), ((9, 11), (11,))):
        for spec in ("x", None):
            how = {"mesh": {"x": 8}, "in_specs": [(*[None] * (len(left) - 1), spec), (spec,)]}
            cases.append(near(run, MATMUL, values.normal(left), values.normal(right), **how))
    run.check_together(cases, assert_near, np.nan)


# From the documentation of np.matmul: "if either argument is N-D, N > 2, it is treated as a stack of matrices residing
# in the last two indexes and broadcast accordingly", and a vector is a matrix by "prepending" or "appending a 1".
STACKS = [
    ((9, 5, 7, 4), (9, 5, 4, 3)),
    ((5, 1, 3, 6), (4, 6, 2)),
    ((3, 11, 13), (13, 5)),
    ((1, 3, 4), (7, 4, 2)),
    ((13,), (3, 13, 5)),
    ((3, 11, 13), (13,)),
    ((0, 3, 4), (1, 4, 2)),
    ((2, 3, 0), (2, 0, 5)),
]


def test_stacks_of_matrices_are_broadcast(run, values):
    cases = []
    for left, right in STACKS:
        lhs, rhs = values.small(left, F64), values.small(right, F64)
        cases.append((run.call(MATMUL, lhs, rhs, mesh=AB), np.matmul(lhs, rhs) + 0.0))
    run.check_together(cases, padding=np.nan)


PREFERRED = [
    *(("bfloat16", "float32"), ("float8_e4m3fn", "float64"), ("int8", "int32"), ("bool", "int64"), ("int4", "int8"))
]


def test_types_meet_in_numpys_and_a_preferred_one_is_summed_up_in_and_returned(run, values):
    cases = []
    for of_lhs, of_rhs in (("int8", "uint8"), ("int8", "bfloat16"), ("bool", "int4"), ("uint64", "int64")):
        lhs, rhs = values.small((9, 11), NAMED[of_lhs]), values.small((11, 6), NAMED[of_rhs])
        cases.append((run.call(MATMUL, lhs, rhs, mesh={"x": 8}), exact(lhs, rhs)))
    for of_factors, preferred in PREFERRED:
        lhs, rhs = values.small((9, 300), NAMED[of_factors]), values.small((300, 6), NAMED[of_factors])
        how = {"mesh": {"x": 8}, "in_specs": [BY_COLUMNS, BY_ROWS], "preferred_element_type": preferred}
        product = lhs.astype(preferred) @ rhs.astype(preferred)
        cases += [(run.call(MATMUL, lhs, rhs, strategy=s, **how), product) for s in ("gspmd", "psum")]
    run.check_together(cases)
    types = [ArrayType((8, 8), F32)] * 2
    named, unset = (run.resolve(MATMUL, *types, preferred_element_type=name).problem for name in ("float32", None))
    assert named.parameters == unset.parameters


@rows(
    "lhs_spec, rhs_spec, out_spec, able",
    [
        (("a", "b"), ("a", "b"), None, ["all_gather", "summa", "reshard"]),
        (("a", "b"), ("a", "b"), ("b", "a"), ["all_gather"]),
        (("a", "b"), ("b",), None, ["psum", "psum_scatter"]),
        (("a",), (None, "b"), None, []),
        ((None, "a"), ("a", "b"), (), []),
        (("a", "b"), ("b", "a"), None, ["reshard"]),
        (("b",), ("a",), ("b", "a"), ["all_gather", "reshard"]),
        (("b",), ("b",), None, ["all_gather", "summa", "reshard"]),
        (("b",), ("a",), ("b",), ["reshard"]),
    ],
)
def test_which_strategies_serve(run, lhs_spec, rhs_spec, out_spec, able):
    how = {"mesh": AB, "in_specs": [lhs_spec, rhs_spec], "out_specs": [out_spec]}
    assert serving(run, ArrayType((16, 16), F32), ArrayType((16, 16), F32), **how) == able


XY, X8 = {"x": 4, "y": 2}, {"x": 8}
SQUARE, WIDE, CUBIC = (16, 16, 16), (8, 3000, 2000), (1024, 1024, 1024)


@rows(
    "mesh, sizes, in_specs, out_spec, chosen, spec_of_result",
    [
        (XY, SQUARE, [("x", None), (None, "y")], None, "gspmd", (("x",), ("y",))),
        (XY, SQUARE, [(None, "x"), ("x", None)], None, "psum_scatter", (("x",), ())),
        (XY, SQUARE, [(None, "x"), ("x", None)], (), "psum", ((), ())),
        (XY, SQUARE, [(None, "x"), ("x", None)], (None, "x"), "psum_scatter", ((), ("x",))),
        (XY, SQUARE, [(None, "x"), ("x", None)], ("y", "x"), "all_gather", (("y",), ("x",))),
        (XY, SQUARE, [(None, "x"), (None, "x")], None, "all_gather", ((), ("x",))),
        (XY, SQUARE, [("y", "x"), ("x", "y")], None, "reshard", (("y", "x"), ())),
        (X8, WIDE, [("x",), ("x",)], None, "reshard", (("x",), ())),
        (X8, WIDE, [("x",), ("x",)], (), "reshard", ((), ())),
        (X8, WIDE, [("x",), (None, "x")], None, "reshard", ((), ("x",))),
        (X8, WIDE, [("x",), (None, "x")], ("x",), "all_gather", (("x",), ())),
        (X8, WIDE, [(None, "x"), ("x",)], None, "psum_scatter", (("x",), ())),
        (X8, (1, 3000, 8), [(None, "x"), ("x",)], None, "psum", ((), ())),
        (X8, (2000, 3000, 8), [("x",), ("x",)], None, "all_gather", (("x",), ())),
        (X8, CUBIC, [("x",), ("x",)], None, "all_gather", (("x",), ())),
        (X8, CUBIC, [("x",), ()], None, "gspmd", (("x",), ())),
    ],
)
def test_auto_sums_where_the_contracting_axis_is_sharded_and_sends_the_fewest_bytes(
    run, mesh, sizes, in_specs, out_spec, chosen, spec_of_result
):
    m, k, n = sizes
    how = {"mesh": mesh, "in_specs": in_specs, "out_specs": [out_spec]}
    resolved = run.resolve(MATMUL, ArrayType((m, k), F32), ArrayType((k, n), F32), **how)
    assert (resolved.strategy.name, resolved.problem.out_specs) == (chosen, (spec_of_result,))


def program(run, sizes, *in_specs, kernel=MATMUL, **how):
    m, k, n = sizes
    return run.program(kernel, ArrayType((m, k), F32), ArrayType((k, n), F32), in_specs=in_specs, **how)


def counts(text):
    """Counts each collective of a compiled text."""
    counted = {operation: text.count(f" {operation}(") for operation in COLLECTIVES}
    return {operation: count for operation, count in counted.items() if count}


def test_what_travels(run):
    small = (32, 16, 8)
    assert counts(program(run, small, mesh=XY, out_specs=[("x", "y")]).compiled.as_text()) == {}
    gathered = program(run, small, kernel=COLLECTIVE, mesh={"x": 4}, axis_name="x").compiled.as_text()
    assert counts(gathered) == {"all-gather": 1}
    assert "f32[8,8]{1,0} dot(" in gathered
    moved = counts(program(run, (8, 3000, 2000), ("x",), ("x",), mesh=X8).compiled.as_text())
    assert "all-gather" not in moved
    assert "reduce-scatter" in moved
    by_both = program(run, (64, 64, 64), ("a", "b"), ("a", "b"), mesh=AB, strategy="all_gather").compiled.as_text()
    assert counts(by_both) == {"all-gather": 2}
    assert len(re.findall(r"f32\[(16,32|32,16)\]\S* dot\(", by_both)) == 1
    for strategy, sends in (("ring", 3), ("bidirectional_ring", 6)):
        how = {"kernel": COLLECTIVE, "mesh": {"x": 4}, "axis_name": "x", "strategy": strategy}
        assert counts(program(run, small, **how).compiled.as_text()) == {"collective-permute": sends}


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
    types = [ArrayType((8, 8), F32)] * 2
    text = run.program(COLLECTIVE, *types, **collective(layout, strategy, {"x": 4})).text
    assert text.count(" collective-permute(") == sends
    assert (" while(" in text) == (sends < 3)


def test_summa_broadcasts_panels_and_never_holds_the_gathered_operands(run):
    summa, gathered = (
        program(run, (256, 256, 256), ("a", "b"), ("a", "b"), mesh=AB, strategy=strategy).compiled
        for strategy in ("summa", "all_gather")
    )
    assert counts(summa.as_text()).keys() == {"all-reduce"}
    panels = 4
    block = 256 * 256 * 4 // 8
    gathered_bytes = 2 * block + 4 * block  # lhs along b, rhs along a
    assert gathered.memory_analysis().temp_size_in_bytes >= gathered_bytes
    assert summa.memory_analysis().temp_size_in_bytes <= 2 * gathered_bytes // panels + 2 * block


@rows("columns, rows_of_lhs", [(4, 8), (5, 7), (1, 1), (9, 3)])
def test_psum_scatter_leaves_every_device_its_columns_if_asked(run, columns, rows_of_lhs):
    generator = np.random.default_rng(columns)
    lhs, rhs = generator.standard_normal((rows_of_lhs, 16)), generator.standard_normal((16, columns))
    layout = {"mesh": {"x": 2, "y": 4}, "in_specs": [("x", "y"), ("y", None)], "out_specs": [("x", "y")]}
    assert_near(run(MATMUL, lhs, rhs, strategy="psum_scatter", **layout), (lhs, rhs))
    text = run.program(MATMUL, lhs, rhs, strategy="psum_scatter", **layout).compiled.as_text()
    assert "reduce-scatter" in text
    assert "all-reduce" not in text


@rows(
    "in_specs, out_spec, collective_of_sums",
    [
        ([(None, "a"), ("a",)], ("a",), "reduce-scatter"),
        ([(None, "a"), ("a",)], (), "all-reduce"),
        ([("b", "a"), ("a",)], (("b", "a"),), "reduce-scatter"),
    ],
)
def test_the_plan_names_the_collective_that_completes_the_partial_sums(run, in_specs, out_spec, collective_of_sums):
    of_program = program(run, SQUARE, *in_specs, mesh=AB, out_specs=[out_spec])
    stated = f"an axis that is summed over is sharded over 'a', and {collective_of_sums} completes the partial sums"
    assert of_program.resolved.reason == stated
    assert [*counts(of_program.text)] == [collective_of_sums]


def test_one_device_gathers_nothing(run):
    two = {"x": 8, "y": 1}
    for mesh, specs, out_spec in (
        ({"x": 1}, [("x",), ()], ()),
        ({"x": 1}, [(), ()], ()),
        (two, [("x",), ()], ("x",)),
        (two, [(("x", "y"),), ()], ("x",)),
    ):
        text = program(
            run, (160, 128, 24), *specs, mesh=mesh, out_specs=[out_spec], strategy="gspmd"
        ).compiled.as_text()
        assert "all-gather" not in counts(text)


def test_work_is_distributed_where_nothing_is_sharded_with_minimal_padding(run, values, same):
    lhs, rhs = values.small((160, 128), F32), values.small((128, 24), F32)
    how = {"mesh": XY, "in_specs": [(), ()], "out_specs": [()], "strategy": "gspmd"}
    same(run(MATMUL, lhs, rhs, **how), lhs @ rhs)
    text = run.program(MATMUL, lhs, rhs, **how).text
    assert "f32[20,24]" in text  # a device's share of the rows
    assert "all-gather" in text
    few = [a[tuple(slice(8) for _ in a.shape)] for a in (lhs, rhs)]
    assert "all-gather" not in run.program(MATMUL, *few, **how).text
    assert "f32[9,8]" in program(run, (9, 128, 64), (), (), mesh=X8, out_specs=[()], strategy="gspmd").text


@rows(
    "strategy, requested, filled",
    [
        ("psum", [], [((), ("a", "b")), (("a", "b"), ())]),
        ("summa", [], [(("a",), ("b",)), (("a",), ("b",))]),
        ("auto", [], [(("a",), ()), ((), ("b",))]),
        ("auto", [("b",)], [(("b",), ()), ((), ("a",))]),
        ("auto", [("a", "b")], [(("a",), ("b",)), (("b",), ())]),
        ("auto", [None, ("b",)], [(("a",), ("b",)), (("b",), ())]),
    ],
)
def test_specs_that_are_unset_meet_those_that_are_set(run, strategy, requested, filled):
    types = [ArrayType((16, 16), F32)] * 2
    assert run.resolve(MATMUL, *types, mesh=AB, in_specs=requested, strategy=strategy).problem.in_specs == tuple(filled)


@rows(
    "strategy, in_specs, expected",
    [
        ("auto", [], "all_gather: P('x', None) P(None, None) -> P(None, None)"),
        ("ring", [], "ring: P('x', None) P(None, None) -> P(None, None)"),
        ("psum_scatter", [], "psum_scatter: P(None, 'x') P('x', None) -> P('x', None)"),
        ("auto", [(None, "x")], "psum_scatter: P(None, 'x') P('x', None) -> P('x', None)"),
        ("ring", [(None, "x")], "ring: P(None, 'x') P(None, None) -> P(None, None)"),
        ("ring", [None, ("x", None)], "ring: P('x', None) P('x', None) -> P('x', None)"),
        ("auto", [None, (None, "x")], "all_gather: P('x', None) P(None, 'x') -> P(None, 'x')"),
        ("auto", [()], "all_gather: P(None, None) P(None, 'x') -> P(None, None)"),
        ("auto", [("x", "y")], "all_gather: P('x', 'y') P('y', None) -> P(None, None)"),
        ("auto", [("z", ("y", "x"))], "psum_scatter: P('z', ('y', 'x')) P(('y', 'x'), None) -> P(('z', 'x'), None)"),
        ("psum_scatter", [None, ("x", "z")], "psum_scatter: P(None, 'x') P('x', 'z') -> P('x', 'z')"),
    ],
)
def test_unset_specs_of_a_collective_product_follow_from_the_others(run, strategy, in_specs, expected):
    how = {"mesh": {"x": 2, "y": 2, "z": 2}, "axis_name": "x", "strategy": strategy, "in_specs": in_specs}
    resolved = run.resolve(COLLECTIVE, ArrayType((8, 8), F32), ArrayType((8, 8), F32), **how)
    lhs, rhs, result = (format_spec(spec) for spec in (*resolved.problem.in_specs, *resolved.problem.out_specs))
    assert f"{resolved.strategy.name}: {lhs} {rhs} -> {result}" == expected


def test_a_refusal_names_the_strategies_that_serve(refused):
    how = {"in_specs": [(None, "x"), ("x", None)], "mesh": {"x": 2, "y": 2, "z": 2}, "axis_name": "x"}
    error = refused(COLLECTIVE, ArrayType((8, 8), F32), ArrayType((8, 8), F32), strategy="ring", **how)
    assert error.metadata["able"] == "psum_scatter,psum_scatter_ring,psum_scatter_bidirectional_ring"

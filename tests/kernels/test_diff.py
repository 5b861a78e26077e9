"""`diff` is np.diff, bit for bit, on every mesh, however it is sharded."""

import itertools

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.functions.stencils import MAX_ORDER
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.stencils import halo
from shardcall_server.kernels.stencils.diff import Diff

DIFF = Diff()
LAYOUTS = [  # mesh, spec of a matrix
    ({"x": 1}, ("x", None)),
    ({"x": 8}, ("x", None)),
    ({"x": 8}, (None, "x")),
    ({"a": 4, "b": 2}, ("a", "b")),
    ({"a": 2, "b": 4}, (("b", "a"), None)),
    ({"a": 2, "b": 2, "c": 2}, (("a", "c"), "b")),
]
SHAPES = [(64, 6), (61, 9)]
EDGES = [  # rows of prepend and append; 0 for a scalar
    (None, None),
    (0, None),
    (None, 0),
    (0, 0),
    (1, None),
    (2, None),
    (None, 3),
    (3, 1),
    (1, 2),
]
# The edges of EDGES one by one.
SHORT = [
    (layout, shape, edges, n)
    for (layout, shape), edges, n in zip(
        itertools.product(LAYOUTS, SHAPES), itertools.cycle(EDGES), itertools.cycle([1, 2, 1, 3]), strict=False
    )
]
COMPLETE = [*itertools.product(LAYOUTS, [*SHAPES, (4095, 2), (1, 3), (16, 3)], EDGES, range(6))]


def edge(values, rows, shape, axis, dtype):
    if rows is None:
        return None
    return values.normal((*shape[:axis], rows, *shape[axis + 1 :]) if rows else (), dtype)


def expected(x, prepend, append, **parameters):
    edges = {name: a for name, a in (("prepend", prepend), ("append", append)) if a is not None}
    with np.errstate(all="ignore"):
        return np.diff(x, **edges, **parameters)


def check(run, values, same, layout, shape, edges, n, strategy):
    mesh, spec = layout
    x = values.normal(shape)
    ends = [edge(values, rows, shape, 0, np.float32) for rows in edges]
    how = {"mesh": mesh, "in_specs": [spec], "n": n, "axis": 0}
    if strategy == "halo" and run.resolve(DIFF, x, *ends, **how).strategy.name == "gspmd":
        strategy = "auto"  # the blocks are far too narrow, or nothing is sharded
    same(run(DIFF, x, *ends, strategy=strategy, **how), expected(x, *ends, n=n, axis=0))


@pytest.mark.parametrize(
    ("layout", "shape", "edges", "n", "strategy"),
    [(*case, ("halo", "halo", "gspmd")[i % 3]) for i, case in enumerate(SHORT)],
)
def test_every_mesh_gives_numpys_result(run, values, same, layout, shape, edges, n, strategy):
    check(run, values, same, layout, shape, edges, n, strategy)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@pytest.mark.parametrize(("layout", "shape", "edges", "n"), COMPLETE)
def test_the_complete_table_gives_numpys_result(run, values, same, layout, shape, edges, n, strategy):
    run.programs.clear()  # no call comes twice
    check(run, values, same, layout, shape, edges, n, strategy)


@pytest.mark.parametrize(("edges", "size"), pairs_of(EDGES, [(160, 1), (157, 2)]))
def test_halo_serves_all_edges(run, values, same, size, edges):
    rows, n = size
    x = values.normal((rows, 3))
    ends = [edge(values, count, x.shape, 0, np.float32) for count in edges]
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "strategy": "halo", "n": n, "axis": 0}
    same(run(DIFF, x, *ends, **how), expected(x, *ends, n=n, axis=0))


@pytest.mark.parametrize(
    ("rows", "n", "edges"),
    [
        (64, 12, (None, None)),
        (64, 33, (0, None)),
        (61, 20, (3, 1)),
        pytest.param(24, 1, (10, None), marks=pytest.mark.long),
        (24, 2, (9, 8)),
        (9, 1, (None, None)),
        (9, 3, (2, 2)),
        pytest.param(16, 1, (2, 1), marks=pytest.mark.long),
    ],
)
def test_halo_fetches_from_farther_blocks_where_neighbours_are_narrow(run, values, same, rows, n, edges):
    x = values.normal((rows, 3), np.float64)
    ends = [edge(values, count, x.shape, 0, np.float64) for count in edges]
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "strategy": "halo", "n": n, "axis": 0}
    same(run(DIFF, x, *ends, padding=np.nan, **how), expected(x, *ends, n=n, axis=0))


def test_every_element_type(run, values, same, dtype):
    x, first = values.any((24, 5), dtype), values.any((1, 5), dtype)
    same(run(DIFF, x, first, mesh={"x": 8}, n=2, axis=0), expected(x, first, None, n=2, axis=0))


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@pytest.mark.parametrize("n", range(6))
def test_every_element_type_in_every_order(run, values, same, dtype, n, strategy):
    x, last = values.any((48, 5), dtype), values.any((1, 5), dtype)
    result = run(DIFF, x, None, last, mesh={"x": 8}, n=n, axis=0, strategy=strategy)
    same(result, expected(x, None, last, n=n, axis=0))


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2])
def test_every_element_type_on_one_device(run, values, same, dtype, n):
    x, first = values.any((24, 5), dtype), values.any((1, 5), dtype)
    same(run(DIFF, x, first, mesh={"x": 1}, n=n, axis=0), expected(x, first, None, n=n, axis=0))


MIXED = [
    ("float32", "float64"),
    ("int8", "bfloat16"),
    ("uint8", "float8_e4m3fn"),
    ("bool", "int4"),
    ("int64", "complex64"),
    *(pytest.param(*types, marks=pytest.mark.long) for types in (("uint64", "int8"), ("float8_e5m2", "bool"))),
    ("bool", "bool"),
]


@pytest.mark.parametrize(("of_x", "of_edge"), MIXED)
def test_operands_of_two_types_meet_in_numpys(run, values, same, of_x, of_edge):
    of_x, of_edge = (np.dtype(getattr(ml_dtypes, name, name)) for name in (of_x, of_edge))
    x, scalar = values.any((24, 5), of_x), values.any((1,), of_edge).reshape(())
    result = run(DIFF, x, scalar, mesh={"x": 8}, n=2, axis=0)
    same(result, expected(x, scalar, None, n=2, axis=0))


def test_three_types_meet_in_numpys_order(run, values, same):
    x = values.small((24,), np.dtype(ml_dtypes.bfloat16))
    edges = {"prepend": np.complex64(1j), "append": np.int16(3)}
    same(run(DIFF, x, *map(np.asarray, edges.values()), mesh={"x": 8}), np.diff(x, **edges))


def test_the_result_type_is_numpys_for_every_pair(element_types, refused):
    for first, second in itertools.product(element_types, repeat=2):
        x, scalar = np.zeros(2, first), np.zeros((), second)
        types = ArrayType((2,), first), ArrayType((), second)
        try:
            promised = np.diff(x, prepend=scalar).dtype
        except TypeError:
            assert refused(DIFF, *types).reason == Reason.UNSUPPORTED_ELEMENT_TYPE
        else:
            assert DIFF.validate((*types, None), {"n": 1, "axis": -1}).results[0].dtype == promised


@pytest.mark.parametrize(("strategy", "dtype_"), pairs_of(["halo", "gspmd"], ["float32", "int16", "bool"]))
def test_orders_beyond_the_unrolled_are_a_loop(run, values, same, dtype_, strategy):
    n = halo.MAX_UNROLLED + 3
    x = values.any((8 * 2 * n, 3), np.dtype(dtype_))
    if dtype_ == "float32":
        x = values.normal(x.shape)
    same(run(DIFF, x, mesh={"x": 8}, n=n, axis=0, strategy=strategy), expected(x, None, None, n=n, axis=0))


@pytest.mark.parametrize(
    ("shape", "how"),
    pairs_of(
        [(4095, 3), (1, 3), (0, 3), (9, 0), (2, 3, 4), (17,)], [(1, None), (2, np.float32(0)), (1, np.float32(0))]
    ),
)
def test_shapes_that_8_devices_do_not_divide(run, values, same, shape, how):
    x, (n, first) = values.normal(shape), how
    same(run(DIFF, x, first, mesh={"x": 8}, n=n, axis=0), expected(x, first, None, n=n, axis=0))


@pytest.mark.parametrize("axis", [-3, -2, 1, 2])
def test_any_axis(run, values, same, axis):
    x, row = values.normal((8, 9, 10)), np.float64(0.5)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [("b", None, "a")], "axis": axis}
    same(run(DIFF, x, None, row, **how), expected(x, None, row, axis=axis))


def test_order_0_is_x_whatever_the_other_arguments(run, values, same):
    x, misfit = values.normal((9, 3)), values.normal((2, 2, 2))
    same(run(DIFF, x, misfit, mesh={"x": 8}, n=0, axis=7), x)
    same(run(DIFF, np.float32(3), n=0), np.asarray(np.float32(3)))


def test_an_order_that_leaves_nothing_is_cheap(run, values, same):
    x = values.normal((9, 3))
    for n in (9, 10, 10**12, 2**62):  # with a pass for each order, it would not end
        same(run(DIFF, x, mesh={"x": 8}, n=n, axis=0), np.zeros((0, 3), np.float32))
    same(run(DIFF, x[:, :0], mesh={"x": 8}, n=10**12, axis=1), np.zeros((9, 0), np.float32))
    same(run(DIFF, x[:0], np.zeros((0, 3)), mesh={"x": 8}, n=5, axis=0), np.zeros((0, 3)))
    assert run.resolve(DIFF, x, n=9, axis=0).problem == run.resolve(DIFF, x, n=10**12, axis=0).problem


@pytest.mark.parametrize(
    ("strategy", "edges"), pairs_of(["halo", "gspmd"], [(None, None), (0, None), (2, 1), (None, 2)])
)
def test_padding_does_not_leak(run, values, same, edges, strategy):
    x = values.normal((61, 5))
    ends = [edge(values, rows, x.shape, 0, np.float32) for rows in edges]
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")], "n": 2, "axis": 0, "strategy": strategy}
    same(run(DIFF, x, *ends, padding=np.nan, **how), expected(x, *ends, n=2, axis=0))


def test_edges_may_be_sharded_otherwise_than_x(run, values, same):
    x, first, last = values.normal((64, 6)), values.normal((3, 6)), np.float32(2)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", None), ("b", "a"), ()], "n": 3, "axis": 0}
    for strategy in ("halo", "gspmd"):
        result = run(DIFF, x, first, last, padding=np.nan, strategy=strategy, **how)
        same(result, expected(x, first, last, n=3, axis=0))


def test_a_result_may_be_sharded_otherwise_than_x(run, values, same):
    x = values.normal((61, 6))
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "out_specs": [(None, "x")], "axis": 0}
    assert run.program(DIFF, x, **how).resolved.strategy.name == "gspmd"
    same(run(DIFF, x, padding=np.nan, **how), expected(x, None, None, axis=0))


REAL = st.floats(width=32, allow_subnormal=False, allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=hnp.arrays(np.float32, (19, 2), elements=REAL), first=REAL, last=hnp.arrays(np.float32, (1, 2), elements=REAL))
def test_any_values(run, same, strategy, x, first, last):
    ends = np.float32(first), last
    result = run(DIFF, x, *ends, mesh={"x": 8}, n=2, axis=0, strategy=strategy)
    want = expected(x, *ends, n=2, axis=0)
    tiny = np.abs(want) < 1e-30  # a difference may be subnormal though no operand is
    same(np.where(tiny, np.float32(0), result), np.where(tiny, np.float32(0), want))


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=hnp.arrays(np.uint64, (19, 2)), first=st.integers(0, 2**64 - 1))
def test_any_integers_wrap(run, same, strategy, x, first):
    result = run(DIFF, x, np.uint64(first), mesh={"x": 8}, n=2, axis=0, strategy=strategy)
    same(result, expected(x, np.uint64(first), None, n=2, axis=0))


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_result_does_not_depend_on_the_mesh(run, same, data):
    run.programs.clear()
    mesh, spec = data.draw(st.sampled_from(LAYOUTS))
    shape = data.draw(st.tuples(st.integers(0, 70), st.integers(0, 9)))
    n, axis = data.draw(st.integers(0, 6)), data.draw(st.integers(-2, 1))
    x = np.random.default_rng(0).normal(size=shape)
    ends = [
        edge_of(np.random.default_rng(1), data.draw(st.sampled_from([None, 0, 1, 2, 7])), shape, axis % 2)
        for _ in range(2)
    ]
    result = run(DIFF, x, *ends, mesh=mesh, in_specs=[spec], n=n, axis=axis)
    same(result, expected(x, *ends, n=n, axis=axis))


def edge_of(random, rows, shape, axis):
    if rows is None:
        return None
    return random.normal(size=(*shape[:axis], rows, *shape[axis + 1 :]) if rows else ())


def test_along_a_sharded_axis_only_edges_travel(run):
    x, scalar = ArrayType((4096, 16), np.dtype(np.float64)), ArrayType((), np.dtype(np.float64))
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "axis": 0}
    text = run.program(DIFF, x, scalar, **how).compiled.as_text()
    assert text.count(" collective-permute(") == 1
    assert "f64[1,16]{1,0} collective-permute(" in text
    # The thread of a device waits in a collective, so the compiler schedules work that needs no collective first.
    steps = text[text.index("ENTRY") :]
    assert steps.index(" = f64[512,16]{1,0} fusion(") < steps.index(" collective-permute(")
    assert not any(word in text for word in ("all-gather", "all-to-all", "all-reduce"))


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
def test_across_the_sharded_axis_nothing_travels(run, strategy):
    x, scalar = ArrayType((4096, 17), np.dtype(np.float64)), ArrayType((), np.dtype(np.float64))
    how = {"mesh": {"x": 8}, "in_specs": [(None, "x")], "axis": 0, "strategy": strategy}
    text = run.program(DIFF, x, scalar, **how).compiled.as_text()
    assert not any(word in text for word in ("collective-permute", "all-gather", "all-to-all", "all-reduce"))


@pytest.mark.parametrize(("size", "n"), pairs_of([(2, 4096), (8, 4095), (2, 4095), (8, 4096)], [1, 2, 3, 4]))
def test_up_to_order_four_no_block_is_written_for_a_separate_pass(run, size, n):
    """Also if the blocks of x and of the result have different sizes, so that offsets differ between devices."""
    devices, rows = size
    x, scalar = ArrayType((rows, 16), np.dtype(np.float64)), ArrayType((), np.dtype(np.float64))
    how = {"mesh": {"x": devices}, "in_specs": [("x", None)], "axis": 0, "n": n, "strategy": "halo"}
    compiled = run.program(DIFF, x, scalar, **how).compiled
    assert compiled.memory_analysis().temp_size_in_bytes < rows * 16 * 8 / devices / 2


F32 = np.dtype(np.float32)
MATRIX = ArrayType((64, 8), F32)


@pytest.mark.parametrize(
    ("spec", "axis", "rows", "chosen", "because"),
    [
        (("x", None), 0, 64, "halo", "sharded over x; only its edge rows move"),
        (("x", None), 1, 64, "gspmd", "axis 1 is not sharded"),
        (("x", None), 0, 65, "halo", "sharded over x"),
        (("x", None), 0, 9, "halo", "sharded over x"),
        (("x", None), 0, 1, "gspmd", "there is no difference"),
    ],
)
def test_auto_takes_halo_where_it_can(run, spec, axis, rows, chosen, because):
    resolved = run.resolve(DIFF, ArrayType((rows, 8), F32), mesh={"x": 8}, in_specs=[spec], axis=axis)
    assert resolved.strategy.name == chosen
    assert because in resolved.reason


def test_unset_specs_follow_x(run):
    scalar, row = ArrayType((), F32), ArrayType((2, 8), F32)
    problem = run.resolve(DIFF, MATRIX, scalar, row, mesh={"a": 4, "b": 2}, axis=0).problem
    assert problem.in_specs == ((("a", "b"), ()), (), ((), ()))
    assert problem.out_specs == problem.in_specs[:1]
    problem = run.resolve(DIFF, MATRIX, row, mesh={"a": 4, "b": 2}, in_specs=[("a", "b")], axis=0).problem
    assert problem.in_specs == ((("a",), ("b",)), ((), ("b",)), None)


@pytest.mark.parametrize(
    ("operands", "parameters", "reason", "field", "says"),
    [
        ([ArrayType((), F32)], {}, Reason.INVALID_OPERAND, "x", "x is float32[], a scalar"),
        ([MATRIX], {"axis": 2}, Reason.AXIS_OUT_OF_RANGE, "axis", "from -2 to 1"),
        ([MATRIX], {"axis": -3}, Reason.AXIS_OUT_OF_RANGE, "axis", "axis=-3 and x has 2 axes"),
        ([MATRIX], {"axis": "0"}, Reason.PARAMETER_TYPE, "axis", "axis='0' is of type str"),
        ([MATRIX], {"axis": 0.0}, Reason.PARAMETER_TYPE, "axis", "axis=0.0 is of type float"),
        ([MATRIX], {"n": -1}, Reason.INVALID_PARAMETER, "n", "n=-1 is negative"),
        ([MATRIX], {"n": "x" * 5000}, Reason.PARAMETER_TYPE, "n", "(5000 characters)"),
        ([MATRIX], {"n": True}, Reason.PARAMETER_TYPE, "n", "n=True is of type bool"),
        ([MATRIX], {"n": 1.5}, Reason.PARAMETER_TYPE, "n", "of type float; n is an integer"),
        ([MATRIX], {"n": None}, Reason.PARAMETER_TYPE, "n", "NoneType"),
        ([ArrayType((10**12,), F32)], {"n": MAX_ORDER + 1}, Reason.INVALID_PARAMETER, "n", "at most 1024"),
        ([MATRIX, ArrayType((2,), F32)], {}, Reason.INVALID_OPERAND, "prepend", "(2,) and x (64, 8)"),
        ([MATRIX, None, ArrayType((3, 2), F32)], {}, Reason.INVALID_OPERAND, "append", "but axis 1"),
        (
            [ArrayType((8,), np.dtype(t)) for t in (ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn)],
            {},
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            "prepend",
            "prepend float8_e4m3fn and x float8_e5m2 have no common element type; convert one to the type of the other",
        ),
        (
            [ArrayType((8,), np.dtype(t)) for t in (ml_dtypes.bfloat16, np.int16, np.complex64)],
            {},
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            "append",
            "convert all to one of these types, or to float32",
        ),
        ([], {}, Reason.OPERAND_COUNT, "x", "left out"),
        ([MATRIX], {"order": 1}, Reason.UNKNOWN_PARAMETER, "order", "no parameter"),
    ],
)
def test_what_cannot_be_is_refused(refused, operands, parameters, reason, field, says):
    error = refused(DIFF, *operands, **parameters)
    assert (error.reason, error.field) == (reason, field)
    assert says in error.message


@pytest.mark.parametrize(
    ("rows", "n", "out_specs", "says"),
    [
        (64, 60, [], "a block has 8 rows and needs 53 of those on one side, and it serves 4 neighbours on each"),
        (64, 1, [(None, "x")], "x is sharded as P('x', None) and the result as P(None, 'x')"),
    ],
)
def test_halo_says_what_it_cannot_serve(refused, rows, n, out_specs, says):
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "strategy": "halo", "axis": 0}
    error = refused(DIFF, ArrayType((rows, 8), F32), n=n, out_specs=out_specs, **how)
    assert error.reason == Reason.STRATEGY_UNSUPPORTED
    assert says in error.message
    assert "these can: gspmd, auto" in error.message

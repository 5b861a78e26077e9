"""`diff` is np.diff, bit for bit, on every mesh, however it is sharded."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.functions.stencils import MAX_ORDER
from shardcall_core.layouts.layout import ArrayType
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


@pytest.mark.parametrize(("edges", "size"), pairs_of(EDGES, [(160, 1), (157, 2)]))
def test_halo_serves_all_edges(run, values, same, size, edges):
    rows, n = size
    x = values.normal((rows, 3))
    ends = [edge(values, count, x.shape, 0, np.float32) for count in edges]
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "strategy": "halo", "n": n, "axis": 0}
    same(run(DIFF, x, *ends, **how), expected(x, *ends, n=n, axis=0))


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

"""Differences, shifts, sums and windows along axes are NumPy's on every mesh: bit for bit, or within stated bounds."""

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from kernels.stencil_cases import CALLS, KERNELS, LAYOUTS, assert_agree, check_calls, expected
from rows import rows

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.numerics.scan import running_sum

DIFF, SHIFT, ROLL, LAPLACIAN, GRADIENT, CONVOLVE, CUMSUM = (
    KERNELS[name] for name in ("diff", "shift", "roll", "laplacian", "gradient", "convolve", "cumsum")
)
X8 = {"mesh": {"x": 8}, "in_specs": [("x", None)]}
AB = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]}
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


@pytest.mark.parametrize("number", [0, 3, 5])
def test_results_are_numpys_in_some_layouts(run, values, number):
    """Two calls of each kernel, which differ between the layouts; the long file makes all in every layout."""
    first, second = [], []
    for _, calls_of_kernel in itertools.groupby(CALLS, key=lambda call: call[0]):
        calls = [*calls_of_kernel]
        first.append(calls[23 * number % len(calls)])
        second.append(calls[(23 * number + len(calls) // 2) % len(calls)])
    check_calls(run, values, first, LAYOUTS[number], ["auto"])
    check_calls(run, values, second, LAYOUTS[number])


def calls_of(run, table, **how):
    """Calls of a table, and NumPy's results for them."""
    return [
        (run.call(KERNELS[name], *operands, **how, **parameters), expected(name, operands, parameters))
        for name, operands, parameters in table
    ]


def test_arrays_of_any_rank_that_8_devices_do_not_divide(run, values):
    table = [
        *(("diff", [values.normal(shape)], {"n": n, "axis": 0}) for shape, n in (((9,), 0), ((2, 3, 4), 1))),
        *(("diff", [values.normal(shape), np.float32(0)], {"n": 2, "axis": 0}) for shape in ((17,), (1,), (0,))),
        *(("roll", [np.arange(np.prod(shape)).reshape(shape)], {"shift": 7}) for shape in ((5,), (0, 3))),
        *(("gradient", [values.normal((size,), F64)], {}) for size in (2, 3, 8)),
        *(
            ("convolve", [values.small((count,), F64), values.small((length,), F64)], {"mode": mode})
            for mode, count, length in (("full", 9, 4), ("same", 17, 3), ("valid", 17, 4))
        ),
        *(
            ("cumsum", [np.arange(np.prod(shape)).reshape(shape)], {"axis": axis})
            for shape in ((0,), (1,), (3,), (0, 4), (2, 3, 4))
            for axis in (None, -1)
        ),
    ]
    cases = calls_of(run, table, mesh={"x": 8})
    cases.append((run.call(CONVOLVE, np.zeros((9, 0)), np.ones(3), mesh={"x": 8}, axis=0), np.zeros((11, 0))))
    cases.append((run.call(ROLL, np.array(3), mesh={"x": 8}, shift=7), np.array(3)))
    cases.append((run.call(CUMSUM, np.int64(3), mesh={"x": 8}, axis=0), np.array([3])))
    run.check_together(cases, assert_agree, np.nan)


def test_any_axis_of_a_cube(run, values):
    cube, row = values.normal((8, 9, 10)), np.float64(0.5)
    small = np.arange(13 * 9 * 2).reshape(13, 9, 2)
    table = [
        *(("diff", [cube, None, row], {"axis": axis}) for axis in (-3, -2, 1, 2)),
        *(
            ("shift", [small, np.int8(-5)], {"shift": (2, -3), "axis": (0, 1), "strategy": s})
            for s in ("halo", "gspmd")
        ),
        ("laplacian", [values.normal((5, 6, 7), F64)], {}),
        ("laplacian", [values.normal((8, 4, 2), F64)], {"axes": (2, 0), "boundary": "zero"}),
        ("convolve", [np.arange(54).reshape(2, 9, 3), np.arange(4)], {"axis": -1}),
    ]
    cases = []
    for name, operands, how in table:
        parameters = {key: value for key, value in how.items() if key != "strategy"}
        call = run.call(KERNELS[name], *operands, mesh={"a": 4, "b": 2}, in_specs=[("b", None, "a")], **how)
        cases.append((call, expected(name, operands, parameters)))
    run.check_together(cases, assert_agree, 99)


def test_operands_and_results_may_be_sharded_otherwise_than_x(run, values):
    x, first, last, integers = values.normal((64, 6)), values.normal((3, 6)), np.float32(2), np.arange(27).reshape(9, 3)
    window, odd = np.array([3, 1, -2, 5]), np.array([3.0, -1, 2])
    table = [
        *(("diff", [x, first, last], {"n": 3}, [("x", None), (None, "x"), ()], [], s) for s in ("halo", "gspmd")),
        ("diff", [values.normal((61, 6))], {}, [("x", None)], [(None, "x")], "gspmd"),
        ("convolve", [integers, window], {}, [], [(None, "x")], "gspmd"),
        *(("convolve", [np.arange(9.0), odd], {}, [("x",), ("x",)], [], s) for s in ("halo", "gspmd")),
        ("cumsum", [integers], {}, [], [(None, "x")], "gspmd"),
    ]
    cases = []
    for name, operands, more, in_specs, out_specs, strategy in table:
        parameters = {"axis": 0, **more}
        how = {"mesh": {"x": 8}, "in_specs": in_specs, "out_specs": out_specs, **parameters}
        assert not out_specs or run.resolve(KERNELS[name], *operands, **how).strategy.name == strategy
        call = run.call(KERNELS[name], *operands, **how, strategy=strategy)
        cases.append((call, expected(name, operands, parameters)))
    run.check_together(cases, assert_agree, np.nan)


def test_operands_of_other_types(run, values):
    x, many = values.small((24,), np.dtype(ml_dtypes.bfloat16)), np.ones(1024, ml_dtypes.bfloat16)
    edges = {"prepend": np.complex64(1j), "append": np.int16(3)}
    calls = [(run.call(DIFF, x, *edges.values(), mesh={"x": 8}), np.diff(x, **edges))]
    for of_x, of_fill in [("float32", "int64"), ("uint8", "int64"), (ml_dtypes.bfloat16, "float64")]:
        operands = np.arange(16).astype(of_x), np.asarray(3).astype(of_fill)
        calls.append((run.call(SHIFT, *operands, shift=-9, mesh={"x": 8}), expected("shift", operands, {"shift": -9})))
    cube = values.small((3, 4, 4), np.dtype(np.complex64))
    for spec in ((None, "x", None), (None, None, "x")):  # the compiler pads with complex zeros
        how = {"axes": (1, 2), "boundary": "zero"}
        call = run.call(LAPLACIAN, cube, mesh={"x": 2}, in_specs=[spec], strategy="gspmd", **how)
        calls.append((call, expected("laplacian", [cube], how)))
    run.check_together(calls)
    assert np.cumsum(many)[-1] == 256
    assert run(CUMSUM, many, mesh={"x": 8})[-1] == 1024  # narrow sums do not stall


def test_a_nan_or_an_infinity_reaches_only_what_follows_it(run):
    x = np.ones((64, 3))
    x[40, 0], x[17, 1], x[17, 2] = np.nan, np.inf, -np.inf
    run.check_together([(run.call(CUMSUM, x, mesh={"x": n}, axis=0), np.cumsum(x, 0)) for n in (1, 8)])


def test_the_type_of_a_difference_is_numpys_for_every_pair(element_types, refused):
    for first, second in itertools.product(element_types, repeat=2):
        x, scalar = np.zeros(2, first), np.zeros((), second)
        types = ArrayType((2,), first), ArrayType((), second)
        try:
            promised = np.diff(x, prepend=scalar).dtype
        except TypeError:
            assert refused(DIFF, *types).reason == Reason.UNSUPPORTED_ELEMENT_TYPE
        else:
            assert DIFF.validate((*types, None), {"n": 1, "axis": -1}).results[0].dtype == promised


def test_differences_of_no_order_and_of_as_many_as_there_are_elements(run, values, same):
    x, misfit = values.normal((9, 3)), values.normal((2, 2, 2))
    same(run(DIFF, x, misfit, mesh={"x": 8}, n=0, axis=7), x)
    same(run(DIFF, np.float32(3), n=0), np.asarray(np.float32(3)))
    for n in (9, 10, 10**12, 2**62):  # with a pass for each order, it would not end
        same(run(DIFF, x, mesh={"x": 8}, n=n, axis=0), np.zeros((0, 3), np.float32))
    same(run(DIFF, x[:, :0], mesh={"x": 8}, n=10**12, axis=1), np.zeros((9, 0), np.float32))
    same(run(DIFF, x[:0], np.zeros((0, 3)), mesh={"x": 8}, n=5, axis=0), np.zeros((0, 3)))


@rows(
    "shape, calls",
    [
        ((9, 3), [(DIFF, {"n": 9, "axis": 0}), (DIFF, {"n": 10**12, "axis": 0})]),
        ((64, 8), [(SHIFT, {"shift": n, "axis": 0, "mode": "periodic"}) for n in (-1, 63, 127)]),
        ((64, 8), [(SHIFT, {"shift": n, "axis": 0}) for n in (64, 10**12)]),
        (
            (64, 8),
            [(ROLL, {"shift": s, "axis": a}) for s, a in (((1, 2), (0, 1)), ((2, 65), (1, 0)), ((0, 2, 1), (0, 1, 0)))],
        ),
        ((64, 8), [(ROLL, {"shift": 3}), (ROLL, {"shift": (1, 514)})]),
        ((64,), [(CUMSUM, how) for how in ({}, {"axis": 0}, {"axis": -1}, {"dtype": "float32"}, {"dtype": None})]),
    ],
)
def test_equal_calls_are_one_problem(run, shape, calls):
    first, *others = (run.resolve(kernel, ArrayType(shape, F32), **how).problem for kernel, how in calls)
    assert others == [first] * len(others)


def test_shifts_with_a_fill_differ_from_rolls(run):
    matrix = ArrayType((64, 8), F32)
    assert run.resolve(SHIFT, matrix, shift=-1, axis=0).problem != run.resolve(SHIFT, matrix, shift=63, axis=0).problem


def test_modes_have_numpys_numbers(run, values):
    x, v = values.normal((9,)), values.normal((4,))
    for mode in (0, 1, 2):
        named = run.resolve(CONVOLVE, x, v, mode=mode).problem.parameters.mode
        np.testing.assert_array_equal(np.convolve(x, v, named), np.convolve(x, v, mode))


@pytest.mark.parametrize("shape", [(0,), (1, 3), (2, 0), (3, 0, 2)])
def test_gradients_take_the_shapes_that_numpy_takes(shape):
    x = ArrayType(shape, F32)
    try:
        np.gradient(np.zeros(shape, F32))
    except ValueError:
        with pytest.raises(CallError):
            GRADIENT.validate((x,), {"axis": None, "edge_order": 1})
    else:
        assert GRADIENT.validate((x,), {"axis": None, "edge_order": 1}).results[0] == x


COLLECTIVES = ("collective-permute", "all-gather", "all-to-all", "all-reduce", "reduce-scatter")
BY_ROWS, BY_COLUMNS = {"in_specs": [("x", None)]}, {"in_specs": [(None, "x")]}
TRAVELS = [  # kernel, shapes, how, collectives, and how often what travels is in the text
    ("diff", [(4096, 16), ()], {"axis": 0} | BY_ROWS, {"collective-permute": 1}, {"f64[1,16]": 1}),
    *(("diff", [(4096, 17), ()], {"axis": 0, "strategy": s} | BY_COLUMNS, {}, {}) for s in ("halo", "gspmd")),
    *(
        (
            "shift",
            [(64, 8)],
            {"shift": n, "axis": 0, "mode": mode} | BY_ROWS,
            {"collective-permute": 1},
            {"f64[2,8]": 1},
        )
        for mode, n in (("fill", 2), ("periodic", -2), ("periodic", 62))
    ),
    ("shift", [(64, 8)], {"shift": 20, "axis": 0} | BY_ROWS, {"collective-permute": 2}, {}),
    ("gradient", [(64, 8)], {"axis": 0} | BY_ROWS, {"collective-permute": 2}, {"f64[1,8]": 2}),
    ("laplacian", [(64, 16)], AB, {"collective-permute": 4}, {"f64[1,8]": 2, "f64[16,1]": 2}),
    ("convolve", [(64, 32), (3,)], {"axis": 0, "mode": "same"}, {"collective-permute": 2}, {}),
    ("convolve", [(64, 32), (3,)], {"axis": 1}, {}, {}),
    ("cumsum", [(64, 32)], {"axis": 0} | BY_ROWS, {"all-gather": 1}, {}),
    ("cumsum", [(64, 32)], {"axis": 1} | BY_ROWS, {}, {}),
]


@rows("name, shapes, how, operations, carried", TRAVELS)
def test_only_what_must_travels(run, name, shapes, how, operations, carried):
    operands = [ArrayType(shape, F64) for shape in shapes]
    text = run.program(KERNELS[name], *operands, **{"mesh": {"x": 8}} | how).compiled.as_text()
    lines = [line for line in text.splitlines() if any(f" {operation}(" in line for operation in COLLECTIVES)]
    counts = {operation: sum(f" {operation}(" in line for line in lines) for operation in COLLECTIVES}
    assert {operation: count for operation, count in counts.items() if count} == operations
    for part, count in carried.items():
        assert sum(f"= {part}{{" in line for line in lines) == count


def test_work_that_needs_no_collective_is_scheduled_first(run):
    """The thread of a device waits in a collective."""
    x, scalar = ArrayType((4096, 16), F64), ArrayType((), F64)
    text = run.program(DIFF, x, scalar, mesh={"x": 8}, in_specs=[("x", None)], axis=0).compiled.as_text()
    steps = text[text.index("ENTRY") :]
    assert steps.index(" = f64[512,16]{1,0} fusion(") < steps.index(" collective-permute(")


def test_a_running_sum_gathers_totals_and_needs_no_large_scratch(run):
    text = run.program(CUMSUM, ArrayType((64, 32), F64), **X8, axis=0).compiled.as_text()
    assert "f64[8,32]" in next(line for line in text.splitlines() if " all-gather(" in line)
    array = jax.ShapeDtypeStruct((1024, 2048), jnp.float64)
    for axis, shape in ((1, (1024, 1)), (0, (1, 2048))):
        before = jax.ShapeDtypeStruct(shape, jnp.float64)
        compiled = jax.jit(lambda a, b, axis=axis: running_sum(a, axis, b, looped=True)).lower(array, before).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < array.size * 8 / 8


CHOSEN = [  # kernel, shape, how, strategy, reason
    ("diff", (64, 8), {"axis": 0} | X8, "halo", "sharded over x; only its edge rows move"),
    ("diff", (64, 8), {"axis": 1} | X8, "gspmd", "axis 1 is not sharded"),
    ("diff", (65, 8), {"axis": 0} | X8, "halo", "sharded over x"),
    ("diff", (9, 8), {"axis": 0} | X8, "halo", "sharded over x"),
    ("diff", (1, 8), {"axis": 0} | X8, "gspmd", "there is no difference"),
    ("shift", (61, 8), {"axis": 0, "shift": 20} | X8, "halo", ""),
    ("roll", (61, 8), {"axis": 0, "shift": 20} | X8, "halo", ""),
    ("laplacian", (13, 8), AB, "halo", ""),
    ("gradient", (13, 8), AB, "halo", ""),
    ("cumsum", (64, 32), {"mesh": {"x": 8}}, "block_scan", ""),
    ("cumsum", (64, 32), AB, "gspmd", "only its first axis"),
]


@rows("name, shape, how, strategy, reason", CHOSEN)
def test_auto_exchanges_rows_where_it_can(run, name, shape, how, strategy, reason):
    resolved = run.resolve(KERNELS[name], ArrayType(shape, F32), **how)
    assert resolved.strategy.name == strategy
    assert reason in resolved.reason


def test_auto_exchanges_the_rows_of_a_window(run):
    x, v = ArrayType((64, 32), F32), ArrayType((3,), F32)
    assert run.resolve(CONVOLVE, x, v, **X8, axis=0).strategy.name == "halo"


def test_unset_specs_follow_x(run):
    matrix, scalar, row = ArrayType((64, 8), F32), ArrayType((), F32), ArrayType((2, 8), F32)
    problem = run.resolve(DIFF, matrix, scalar, row, mesh={"a": 4, "b": 2}, axis=0).problem
    assert problem.in_specs == ((("a", "b"), ()), (), ((), ()))
    assert problem.out_specs == problem.in_specs[:1]
    problem = run.resolve(DIFF, matrix, row, **AB, axis=0).problem
    assert problem.in_specs == ((("a",), ("b",)), ((), ("b",)), None)

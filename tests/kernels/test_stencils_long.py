"""Differences, shifts, sums and windows: all calls of the table in all layouts, loops, bounds, and unusual types."""

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.stencil_cases import CALLS, LAYOUTS, assert_agree, check_calls, expected, laplacian, operand_of
from kernels.test_stencils import AB, CONVOLVE, CUMSUM, DIFF, GRADIENT, LAPLACIAN, ROLL, SHIFT, X8, calls_of

from shardcall_core.element_types import NAMED
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.numerics.scan import SMALL, running_sum
from shardcall_server.kernels.stencils import halo
from shardcall_server.kernels.stencils.convolve import MAX_UNROLLED

pytestmark = pytest.mark.long

STRATEGIES = ("halo", "gspmd")
PARTS = 10


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("part", range(PARTS))
def test_all_calls_are_numpys_in_all_layouts(run, values, part, layout):
    check_calls(run, values, CALLS[part::PARTS], LAYOUTS[layout])


def test_halo_fetches_from_farther_blocks_where_neighbours_are_narrow(run, values):
    table = [
        *((64, 12, (None, None)), (64, 33, ((), None)), (61, 20, ((3, 3), (1, 3))), (24, 1, ((10, 3), None))),
        *((24, 2, ((9, 3), (8, 3))), (9, 1, (None, None)), (9, 3, ((2, 3), (2, 3))), (16, 1, ((2, 3), (1, 3)))),
    ]
    calls = []
    for count, n, edges in table:
        operands = [None if s is None else operand_of(values, "diff", 0, s) for s in ((count, 3), *edges)]
        calls.append(("diff", operands, {"n": n, "axis": 0}))
    run.check_together(calls_of(run, calls, strategy="halo", **X8), assert_agree, np.nan)


MIXED = [
    *(("float32", "float64"), ("int8", "bfloat16"), ("uint8", "float8_e4m3fn"), ("bool", "int4")),
    *(("int64", "complex64"), ("uint64", "int8"), ("float8_e5m2", "bool"), ("bool", "bool")),
]


def test_operands_of_two_types_meet_in_numpys(run, values):
    cases = []
    for of_x, of_edge in MIXED:
        x, scalar = values.any((24, 5), NAMED[of_x]), values.any((1,), NAMED[of_edge]).reshape(())
        parameters = {"n": 2, "axis": 0}
        call = run.call(DIFF, x, scalar, mesh={"x": 8}, **parameters)
        cases.append((call, expected("diff", [x, scalar], parameters)))
    pairs = (("int8", "float32"), ("uint8", "int8"), ("bool", "int32"), ("float32", "complex64"), ("int4", "int8"))
    for of_x, of_v in pairs:
        x, v = values.small((20,), NAMED[of_x]), values.small((3,), NAMED[of_v])
        dtype = np.result_type(x, v)
        cases.append((run.call(CONVOLVE, x, v, mesh={"x": 8}), np.convolve(x.astype(dtype), v.astype(dtype))))
    run.check_together(cases)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_orders_beyond_the_unrolled_are_a_loop(run, values, strategy):
    n = halo.MAX_UNROLLED + 3
    arrays = [values.any((8 * 2 * n, 3), NAMED[name]) for name in ("int16", "bool")]
    calls = [("diff", [x], {"n": n, "axis": 0}) for x in (*arrays, values.normal(arrays[0].shape))]
    run.check_together(calls_of(run, calls, mesh={"x": 8}, strategy=strategy), assert_agree)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_result_does_not_depend_on_the_mesh(run, same, data):
    run.programs.clear()
    mesh, spec = data.draw(st.sampled_from(LAYOUTS))
    shape = data.draw(st.tuples(st.integers(0, 70), st.integers(0, 9)))
    n, axis = data.draw(st.integers(0, 6)), data.draw(st.integers(-2, 1))
    random, operands = np.random.default_rng(0), []
    for rows in (None, *(data.draw(st.sampled_from([None, 0, 1, 2, 7])) for _ in range(2))):
        of_edge = [*shape] if operands else shape
        if operands:
            of_edge[axis] = rows
        operands.append(None if operands and rows is None else random.normal(size=() if rows == 0 else of_edge))
    result = run(DIFF, *operands, mesh=mesh, in_specs=[spec], n=n, axis=axis)
    same(result, expected("diff", operands, {"n": n, "axis": axis}))


@pytest.mark.parametrize("devices", [2, 8])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_up_to_order_four_no_block_is_written_for_a_separate_pass(run, devices, n):
    """Also if the blocks of x and of the result have different sizes, so that offsets differ between devices."""
    for rows in (4095, 4096):
        x, scalar = ArrayType((rows, 16), np.dtype(np.float64)), ArrayType((), np.dtype(np.float64))
        how = {"mesh": {"x": devices}, "in_specs": [("x", None)], "axis": 0, "n": n, "strategy": "halo"}
        compiled = run.program(DIFF, x, scalar, **how).compiled
        assert compiled.memory_analysis().temp_size_in_bytes < rows * 16 * 8 / devices / 2


@pytest.mark.parametrize("name", ["bfloat16", "float32", "complex64"])
def test_zeros_keep_their_sign_and_subnormals_stay(run, values, same_bits, name):
    x, fill = values.zeros_and_subnormals((13, 9), name), values.zeros_and_subnormals((1,), name).reshape(())
    calls = []
    for shift, mode in ((2, "fill"), (-2, "periodic"), (7, "fill")):
        operands = [x, fill] if mode == "fill" else [x]
        numpys = expected("shift", (x, fill), {"shift": shift, "axis": 0, "mode": mode})
        calls.append((run.call(SHIFT, *operands, strategy="gspmd", shift=shift, axis=0, mode=mode, **X8), numpys))
    if name == "bfloat16":
        narrow = values.subnormal((13, 9), np.dtype(np.float16))
        how = {"shift": (-1, 3), "axis": (1, 0)}
        calls += [(run.call(ROLL, narrow, strategy=s, **AB, **how), np.roll(narrow, *how.values())) for s in STRATEGIES]
    run.check_together(calls, same_bits)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_bit_is_shifted(run, same_bits, strategy):
    calls = []
    for name in ("float8_e5m2", "bfloat16", "float32", "float16"):
        dtype = NAMED[name]
        every = np.arange(2 ** min(8 * dtype.itemsize, 16)).astype(f"u{dtype.itemsize}")
        x = (every if dtype.itemsize < 4 else every + np.uint32(0x7F800000)).view(dtype)  # NaN of every payload too
        how = {"shift": 1, "mode": "periodic", "strategy": strategy}
        calls += [(run.call(SHIFT, x, mesh={"x": devices}, **how), np.roll(x, 1)) for devices in (1, 3)]
    run.check_together(calls, same_bits)


def test_steps_divide_every_axis(run, values):
    x = values.normal((16, 6))
    result = run(LAPLACIAN, x, np.float64(0.5), np.float64(3), boundary="edge", **AB)
    np.testing.assert_allclose(result, laplacian(x.astype(np.float64), 0.5, 3, boundary="edge"), rtol=1e-5, atol=1e-5)
    integers = x.astype(np.int32)
    result = run(LAPLACIAN, integers, np.int64(2), **AB)
    np.testing.assert_allclose(result, laplacian(integers, 2, 2), rtol=1e-12)
    assert result.dtype == np.float64


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_infinity_does_not_affect_its_row_where_steps_are_even(run, values, edge_order, strategy):
    x = values.small((13,), np.dtype(np.float64))
    x[[0, 5]] = np.inf, -np.inf
    for coordinates in (np.arange(13.0), np.arange(13)[::-1], np.arange(13) ** 2):
        how = {"edge_order": edge_order, "strategy": strategy, "mesh": {"x": 4}, "in_specs": [("x",)]}
        with np.errstate(invalid="ignore"):
            want = np.gradient(x, coordinates, edge_order=edge_order)
        np.testing.assert_allclose(run(GRADIENT, x, coordinates, **how), want, rtol=1e-12, atol=1e-12)


SUMMED = [
    *(("float64", "int32"), ("float32", "bool"), ("int64", "bool"), ("int32", "int8"), ("uint8", "int4")),
    *(("int8", "float32"), ("float32", "complex64"), ("bool", "float16"), ("bool", "bool")),
    ("float8_e4m3fn", "float64"),
]


def test_dtype_is_summed_in_and_returned(run, values):
    cases = []
    for of_x, dtype in SUMMED:
        x = (values.normal((24, 3), np.float64) * 3).astype(NAMED[of_x])
        cases.append((run.call(CUMSUM, x, mesh={"x": 8}, axis=0, dtype=dtype), np.cumsum(x, 0, dtype=NAMED[dtype])))

    def compare(actual, numpys):
        bound = 1e-5 if numpys.dtype.kind in "fc" else 0
        np.testing.assert_allclose(actual, numpys, rtol=bound, atol=bound, strict=True)

    run.check_together(cases, compare)


@pytest.mark.parametrize("size", [6000, SMALL * 3 + 1])
def test_a_part_that_is_infinite_or_no_number_leaves_the_other_part_as_it_is(run, size):
    x = np.ones((size, 3), np.complex64)
    x[40, 0], x[size - 2, 1], x[17, 2] = complex(np.inf, 1), complex(1, np.nan), complex(1, -np.inf)
    for devices in (1, 2, 3):
        np.testing.assert_array_equal(run(CUMSUM, x, mesh={"x": devices}, axis=0), np.cumsum(x, 0))
        np.testing.assert_array_equal(run(CUMSUM, x[:, 0], mesh={"x": devices}, axis=0), np.cumsum(x[:, 0]))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_running_sums_of_floats_keep_the_stated_bound(run, values, name):
    x = values.normal((512, 8), NAMED[name])
    bound = np.arange(1, 513)[:, None] * np.finfo(x.dtype).eps * np.cumsum(np.abs(x), 0, dtype=np.float64)
    for mesh, spec in LAYOUTS[:4]:
        error = np.abs(run(CUMSUM, x, mesh=mesh, in_specs=[spec], axis=0) - np.cumsum(x.astype(np.longdouble), 0))
        assert (error <= bound).all()


FORMS = [  # shapes that reach every form of the loop; n is axis 1
    *((1, SMALL + 5, 1), (3, 7000, 1), (4100, 19, 1), (2000, 10, 1)),
    *((1, 300, 80), (2, 41, 500), (1, 6001, 5), (5000, 2, 3)),
]


@pytest.mark.parametrize("shape", FORMS, ids=str)
def test_every_form_of_the_loop_is_numpys(values, shape):
    array, before = (operand_of(values, "cumsum", 0, s) for s in (shape, (shape[0], 1, shape[2])))
    result = jax.jit(lambda a, b: running_sum(a, 1, b, looped=True))(array, before)
    np.testing.assert_array_equal(result, before + np.cumsum(array, 1), strict=True)


@pytest.mark.parametrize("shape", [(1141, 47), (2000, 20), (5000, 34)], ids=str)
def test_rows_behind_the_last_iteration_are_added_once(run, values, same, shape):
    """XLA updated such rows in place while it read them, in programs of the kernel only."""
    x = values.small(shape, np.dtype("float64"))
    same(run(CUMSUM, x, mesh={"x": 1}, in_specs=[("x", None)], strategy="block_scan", axis=1), np.cumsum(x, 1))


@pytest.mark.parametrize("length", [4, MAX_UNROLLED + 1])
def test_elements_outside_the_array_are_omitted_and_not_zero(run, same, length):
    x, v = np.ones(16), np.ones(length)
    v[2], x[5] = np.inf, -np.inf
    for mesh in ({"x": 1}, {"x": 8}):
        with np.errstate(invalid="ignore"):
            same(run(CONVOLVE, x, v, mesh=mesh), np.convolve(x, v))


@pytest.mark.parametrize(("count", "length"), [(70, MAX_UNROLLED), (70, 50), (20, 90)])
def test_long_windows_keep_the_stated_bound(run, values, count, length):
    x, v = values.normal((count,)), values.normal((length,))
    exact, size = (np.convolve(f(x.astype(np.float64)), f(v.astype(np.float64))) for f in (np.asarray, np.abs))
    assert (np.abs(run(CONVOLVE, x, v, mesh={"x": 8}) - exact) <= length * np.finfo(np.float32).eps * size).all()

"""Elementwise functions are NumPy's of the same name, on every mesh, for every element type."""

import itertools
import re
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import pairs_of

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.elementwise.elementwise import elementwise

KERNELS = {kernel.name: kernel for kernel in elementwise()}
COLLECTIVE = re.compile(r"all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter")

# Units in the last place of float32 and float64 by which a function may differ from NumPy's; all others are exact.
ULPS = dict.fromkeys(("sin", "cos", "tan", "arctan", "arctan2", "hypot", "radians", "degrees", "exp2", "power"), 4)
ULPS |= dict.fromkeys(("float_power", "exp", "log", "log2", "log10", "log1p", "arcsin", "arccos", "angle"), 4)
ULPS |= dict.fromkeys(("arcsinh", "arccosh", "arctanh", "expm1"), 8)
ULPS |= {"sinh": 5, "cosh": 5, "tanh": 3, "cbrt": 3}
# Sums of logarithms near zero are as wrong as their terms.
NEAR_ZERO = ("logaddexp", "logaddexp2")
SHARDED = {"mesh": {"x": 8}, "padding": np.nan}


def expected(name, *operands):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ml_dtypes warns of int4 by zero whatever errstate says
        return np.asarray(getattr(np, name)(*operands))


def assert_close(name, actual, reference):
    """Checks a result within the bound of a function; for complex numbers in units of their magnitude."""
    assert (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
    if name in NEAR_ZERO or reference.dtype.kind == "c":
        eps = (
            2.0**-20
            if reference.real.dtype == np.float32
            else 2.0**-6
            if reference.real.dtype.itemsize < 4
            else 2.0**-45
        )
        np.testing.assert_allclose(actual.astype(complex), reference.astype(complex), rtol=eps, atol=eps)
        return
    with np.errstate(all="ignore"):
        same = (actual == reference) | ((actual != actual) & (reference != reference))  # noqa: PLR0124
        smallest_normal = 2.0 ** (
            -1022 if reference.dtype == np.float64 else -126
        )  # XLA:CPU treats smaller numbers as zero
        same |= (actual == 0) & (abs(reference.astype(float)) < smallest_normal) & (reference.dtype.kind not in "biu")
        # A narrower result is a rounded float32.
        bound = ULPS.get(name, 0) if reference.dtype.itemsize >= 4 else min(ULPS.get(name, 0), 1)
        apart = (
            abs(actual.astype(float) - reference.astype(float)) / np.spacing(abs(reference)).astype(float)
            if bound
            else 1
        )
        wrong = ~(same | (apart <= bound))
    where = np.argwhere(wrong)[:1].tolist()
    assert not wrong.any(), f"{name}: {int(wrong.sum())} of {wrong.size} differ, first at {where}"


def arrays(values, name, dtype, shape=None):
    if shape is None:
        # Blocks that fill unrolled vectors and leave a remainder. From 500 elements on, ml_dtypes ends the process if a
        # 4-bit integer is divided by zero.
        shape = (61, 3) if dtype.name in ("int4", "uint4") else (821, 3)
    count = len(KERNELS[name].operands)
    if dtype.kind == "c":
        return [(values.normal(shape, float) + 1j * values.normal(shape, float)).astype(dtype) for _ in range(count)]
    return [
        values.any(shape, dtype) if i or dtype.kind != "f" else 3 * values.normal(shape, dtype) for i in range(count)
    ]


def check(run, values, name, dtype, mesh):
    operands = arrays(values, name, dtype)
    if name == "power" and "int" in dtype.name:
        operands[1] = (operands[1].astype(np.int64) % 7).astype(dtype)
    if name == "reciprocal" and ("int" in dtype.name or dtype.kind == "b"):
        operands[0] = np.where(operands[0] == 0, 3, operands[0]).astype(dtype)
    try:
        reference = expected(name, *operands)
    except TypeError:
        with pytest.raises(CallError) as raised:
            run.resolve(KERNELS[name], *operands)
        assert raised.value.reason == Reason.UNSUPPORTED_ELEMENT_TYPE
        return
    assert_close(name, run(KERNELS[name], *operands, mesh=mesh, padding=np.nan if dtype.kind in "fc" else 0), reference)


QUICK = [  # with padding; tests/accuracy has every function, of types that are not here, at 4,096 elements
    *itertools.product(("floor_divide", "remainder", "maximum", "less"), ("int8", "float32")),
    *itertools.product(("left_shift", "right_shift"), ("int8", "uint64")),
    *(("power", "int16"), ("add", "bool"), ("sinh", "float64"), ("sign", "complex128"), ("clip", "float32")),
    *(("fmin", "complex64"), ("isnan", "float16"), ("floor", "int8")),
]


@pytest.mark.parametrize(("name", "dtype_"), QUICK)
def test_elementwise_results_equal_numpys(run, values, name, dtype_):
    check(run, values, name, np.dtype(dtype_), {"x": 8})


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_every_function_is_numpys_for_every_element_type(run, values, element_types, name):
    for dtype in element_types:
        check(run, values, name, dtype, {"a": 4, "b": 2})
        run.programs.clear()  # no call comes twice


@pytest.mark.parametrize(
    ("name", "dtype_"), pairs_of(["true_divide", "floor_divide", "remainder"], ["float32", "float64", "int64"])
)
def test_a_divisor_that_is_broadcast_divides_as_any_other(run, same, values, name, dtype_):
    dtype = np.dtype(dtype_)
    x = values.normal((64, 5), np.float64) * 1000
    for y in (np.array(3), np.full((64, 1), 49), np.array([[3, 7, 49, 11, 98]])):
        operands = x.astype(dtype), y.astype(dtype)
        same(run(KERNELS[name], *operands, mesh={"x": 8}), expected(name, *operands))


def test_the_largest_divisors_are_not_taken_for_infinities(run, same):
    for dtype, largest in ((np.float32, 3e38), (np.float64, 1.5e308)):
        x, y = np.array([largest, largest / 2, 1.0, np.inf] * 4, dtype), np.array(largest, dtype)
        result = run(KERNELS["divide"], x, y, mesh={"x": 4})
        same(result[[0, 1, 3]], np.array([1, 0.5, np.inf], dtype))  # XLA:CPU takes the third, a subnormal, for zero


MOVED = [  # mesh, shape, specs of x and of the result
    ({"b": 2, "y": 3}, (13,), [(("y", "b"),)], [("y",)]),
    ({"a": 2, "x": 4}, (1, 13, 2), [("a", None, "x")], [("x", "a", None)]),
    ({"a": 2, "x": 4}, (8, 6), [(None, "x")], [("a", None)]),
]


@pytest.mark.parametrize(("layout", "dtype_"), pairs_of(MOVED, ["float16", "complex64", "float64"]))
def test_what_is_moved_between_devices_keeps_zeros_signs(run, layout, dtype_):
    mesh, shape, in_specs, out_specs = layout
    x = -np.zeros(shape, dtype_)
    moved = run(KERNELS["positive"], x, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    assert np.signbit(moved.real).all()
    smallest = np.full(shape, np.finfo(dtype_).smallest_subnormal, x.real.dtype)
    kept = run(KERNELS["positive"], smallest, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    assert (kept == smallest).all()


PARTS = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
COMPLEX = np.array([complex(a, b) for a in PARTS for b in PARTS])


def test_the_sign_of_complex_infinities_is_numpys(run, same):
    same(run(KERNELS["sign"], COMPLEX, mesh={"x": 4}), expected("sign", COMPLEX))


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolics_of_small_complex_numbers_have_all_digits(run, name):
    x = np.array([1e-10 + 1e-10j, 1e-20, 1e-3 - 1e-7j, -0.5 + 2j, 300 + 1j, -1e-5j])
    result, reference = run(KERNELS[name], x, mesh={"x": 2}), expected(name, x)
    np.testing.assert_allclose(result.real, reference.real, rtol=2e-15)
    np.testing.assert_allclose(result.imag, reference.imag, rtol=2e-15)


def test_complex_numbers_and_ties_are_clipped_as_in_numpy(run, same):
    some = COMPLEX[np.isfinite(COMPLEX.real) | np.isnan(COMPLEX.real)][::3]
    x, low, high = (np.array(part) for part in zip(*itertools.product(some, repeat=3), strict=True))
    result, reference = run(KERNELS["clip"], x, low, high, mesh={"x": 8}), np.clip(x, low, high)
    same(result, reference)
    zeros = np.array(list(itertools.product((0.0, -0.0, 1.0, -1.0, np.nan), repeat=3))).T
    for dtype in ("float32", "float64"):
        x, low, high = zeros.astype(dtype)
        result, reference = run(KERNELS["clip"], x, low, high, mesh={"x": 8}), np.clip(x, low, high)
        same(result, reference)
        number = ~np.isnan(reference)
        same(np.signbit(result)[number], np.signbit(reference)[number])


def test_every_function_takes_and_gives_numpys_types(element_types):
    for name, kernel in KERNELS.items():
        for dtype in element_types:
            operands = [np.ones(2, dtype) for _ in kernel.operands]
            try:
                reference = expected(name, *operands).dtype
            except TypeError:
                reference = None
            types = [ArrayType((2,), dtype)] * len(operands)
            try:
                result_type = kernel.validate(types, {}).results[0].dtype
            except CallError:
                result_type = None
            assert result_type == reference, (name, dtype)


@pytest.mark.parametrize("name", ["add", "true_divide", "power", "less", "bitwise_and", "arctan2"])
def test_two_types_meet_as_in_numpy(element_types, name):
    for first, second in itertools.product(element_types, repeat=2):
        try:
            with np.errstate(all="ignore"):
                reference = getattr(np, name)(np.ones(1, first), np.ones(1, second)).dtype
        except TypeError:
            with pytest.raises(CallError, match="convert the operands"):
                KERNELS[name].validate([ArrayType((1,), first), ArrayType((1,), second)], {})
        else:
            signature = KERNELS[name].validate([ArrayType((1,), first), ArrayType((1,), second)], {})
            assert signature.results[0].dtype == reference


EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e38, 7.0, -7.0]


@pytest.mark.parametrize("name", ["maximum", "fmax", "floor_divide", "remainder", "fmod", "copysign", "multiply"])
def test_nan_infinity_and_signed_zero(run, same, name):
    x, y = (np.array(a, np.float32) for a in zip(*itertools.product(EDGES, repeat=2), strict=True))
    result, reference = run(KERNELS[name], x, y, mesh={"x": 8}), expected(name, x, y)
    same(result, reference)
    if name not in ("maximum", "fmax"):  # for equal zeros, NumPy's choice depends on the machine
        number = reference == reference  # noqa: PLR0124
        same(np.signbit(result)[number], np.signbit(reference)[number])


@pytest.mark.parametrize("name", ["log2", "exp2"])
def test_complex_infinities_are_numpys(run, name):
    x = np.array([0, complex(np.inf, 0), complex(-np.inf, 0), complex(np.inf, 1), 3 - 4j])
    with np.errstate(all="ignore"):
        reference = getattr(np, name)(x)
    result = run(KERNELS[name], x)
    for part, of_numpy in ((result.real, reference.real), (result.imag, reference.imag)):
        np.testing.assert_allclose(part, of_numpy, rtol=1e-15)


@pytest.mark.parametrize("name", ["power", "float_power"])
def test_powers_of_complex_zero_are_numpys(run, same, name):
    y = np.array([1 + 2j, 0.5 - 1j, 2, 0, 1j, -1, -1 + 1j])
    with np.errstate(all="ignore"):
        reference = getattr(np, name)(np.zeros_like(y), y)
    same(run(KERNELS[name], np.zeros_like(y), y), reference)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "left_shift", "right_shift"])
def test_integers_by_zero_overflow_and_shifts_beyond_the_width(run, same, name):
    pairs = itertools.product(range(-128, 128), (-128, -9, -8, -2, -1, 0, 1, 3, 7, 8, 127))
    x, y = (np.array(a, np.int8) for a in zip(*pairs, strict=True))
    same(run(KERNELS[name], x, y, mesh={"x": 8}), expected(name, x, y))


def test_int64_and_uint64_are_compared_by_value(run, same):
    x, y = np.array([-1, 2**62, 5, -(2**63)]), np.array([2**64 - 1, 2**62, 4, 2**63], np.uint64)
    for name in ("less", "equal", "greater_equal"):
        first, second = (y, x) if name == "equal" else (x, y)
        same(run(KERNELS[name], first, second), expected(name, first, second))


@pytest.mark.parametrize("small", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("name", ["multiply", "divide"])
def test_float8_is_rounded_once_for_every_pair_of_values(run, same, small, name):
    every = np.arange(256, dtype=np.uint8).view(small)
    x, y = (a.ravel() for a in np.meshgrid(every, every))
    same(run(KERNELS[name], x, y, mesh={"x": 8}), expected(name, x, y))


SHAPES = [((61, 3), (3,)), ((), (61, 3)), ((61, 1), (1, 3)), ((1, 3), (61, 3)), ((2, 5, 3), (5, 1)), ((0, 3), (1, 3))]


@pytest.mark.parametrize(("first", "second"), SHAPES)
def test_operands_broadcast(run, values, same, first, second):
    x, y = values.normal(first), values.normal(second)
    same(run(KERNELS["subtract"], x, y, **SHARDED), x - y)


def test_three_operands_broadcast(run, values, same):
    x, y, condition = values.normal((61, 3)), values.normal((3,)), values.small((61, 1), np.dtype(np.int8))
    same(run(KERNELS["where"], condition, x, y, **SHARDED), np.where(condition, x, y))
    same(run(KERNELS["clip"], x, y, np.float32(0.5), **SHARDED), np.clip(x, y, np.float32(0.5)))
    same(run(KERNELS["clip"], x, None, np.float32(0.5), **SHARDED), np.clip(x, None, np.float32(0.5)))
    same(run(KERNELS["clip"], x, **SHARDED), x)


LAYOUTS = [(("a", "b"), ("a", "b")), (("a", "b"), (None, ("b", "a"))), ((None, None), ("b", None)), (("b",), None)]


@pytest.mark.parametrize(("x_spec", "y_spec"), LAYOUTS)
@pytest.mark.parametrize("out_spec", [None, (None, "a")])
def test_operands_may_have_different_shardings(run, values, same, x_spec, y_spec, out_spec):
    x, y = values.normal((13, 5)), values.normal((13, 5))
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [x_spec, y_spec], "out_specs": [out_spec], "padding": np.nan}
    same(run(KERNELS["add"], x, y, **how), x + y)


def test_mesh_axes_of_one_device_gather_nothing(run):
    x = ArrayType((64, 64), np.dtype("float32"))
    for mesh, spec, out_spec in (({"a": 1}, ("a", None), (None, None)), ({"a": 8, "b": 1}, (("a", "b"),), ("a",))):
        how = {"mesh": mesh, "in_specs": [spec], "out_specs": [out_spec]}
        assert not COLLECTIVE.search(run.program(KERNELS["sin"], x, **how).compiled.as_text())


@pytest.mark.parametrize(
    ("spec", "dtype_name"),
    pairs_of(
        [("a", "b"), (None, ("a", "b")), (("b", "a"), None)],
        ["bool", "int4", "float8_e5m2", "bfloat16", "float32", "complex64"],
    ),
)
@pytest.mark.parametrize("shape", [(16, 24), (19, 5)])
def test_a_result_on_fewer_mesh_axes_is_computed_in_blocks_and_gathered(
    run, values, element_types, shape, spec, dtype_name
):
    dtype = next(element_type for element_type in element_types if element_type.name == dtype_name)
    x = values.any(shape, dtype)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [spec], "out_specs": [(None, None)]}
    padding = 0 if dtype.kind in "biu" or dtype.name == "int4" else np.nan
    assert_close("add", run(KERNELS["add"], x, x, **how, padding=padding), expected("add", x, x))
    text = run.program(KERNELS["add"], *[ArrayType(shape, dtype)] * 2, **how).compiled.as_text()
    gathers = [line for line in text.splitlines() if " all-gather(" in line]
    assert gathers
    assert all("dimensions={0}" in line for line in gathers)


def test_nothing_moves_where_the_specs_agree(run):
    x, row = ArrayType((61, 12), np.dtype("float32")), ArrayType((12,), np.dtype("float32"))
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]}
    for name, operands in [("sin", [x]), ("add", [x, x]), ("maximum", [x, row]), ("where", [x, x, row])]:
        assert not COLLECTIVE.search(run.program(KERNELS[name], *operands, **how).text), name
    moved = run.program(KERNELS["add"], x, x, **how | {"in_specs": [("a", "b"), ("b", "a")]})
    assert COLLECTIVE.search(moved.text)


def test_unset_specs_follow_the_operands(run):
    x, row, scalar = (ArrayType(shape, np.dtype("float32")) for shape in ((61, 12), (12,), ()))

    def specs(*operands, in_specs=()):
        mesh = {"a": 4, "b": 2}
        problem = run.resolve(KERNELS["add"], *operands, mesh=mesh, in_specs=in_specs).problem
        return problem.in_specs, problem.out_specs[0]

    assert specs(x, row) == (((("a", "b"), ()), ((),)), (("a", "b"), ()))
    assert specs(x, row, in_specs=[("a", "b")]) == (((("a",), ("b",)), (("b",),)), (("a",), ("b",)))
    assert specs(scalar, x, in_specs=[None, (None, "a")]) == (((), ((), ("a",))), ((), ("a",)))
    assert specs(x, x, in_specs=[None, ("b",)]) == (((("b",), ()), (("b",), ())), (("b",), ()))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-(2**15), 2**15), min_size=40, max_size=40), st.sampled_from([1, 2, 3, 8]))
def test_the_mesh_does_not_change_the_result(run, same, items, devices):
    x = (np.array(items) / 1024).astype(np.float32)
    sharded = run(KERNELS["tanh"], x, mesh={"x": devices})
    same(sharded, run(KERNELS["tanh"], x, mesh={"x": 1}))


def test_refusals_say_what_to_do(refused):
    x, y = ArrayType((3, 4), np.dtype("float32")), ArrayType((3,), np.dtype("float32"))
    error = refused(KERNELS["add"], x, y)
    assert (error.reason, error.field) == (Reason.INVALID_OPERAND, "y")
    assert "(3,)" in error.message
    assert "(3, 4)" in error.message
    flags = ArrayType((3,), np.dtype(bool))
    error = refused(KERNELS["subtract"], flags, flags)
    assert error.reason == Reason.UNSUPPORTED_ELEMENT_TYPE
    assert "numpy.subtract does not take bool and bool" in error.message
    assert "float32" in refused(KERNELS["invert"], x).message


@pytest.mark.parametrize("name", ["multiply", "divide"])
def test_a_bool_beside_nan_is_a_number(run, same, name):
    # XLA turns a product with a bool into a select, in which False times NaN is 0.
    flags, x = np.array([False, True, False, True]), np.array([np.nan, np.nan, np.inf, -0.0])
    for operands in ((flags, x), (x, flags), (flags, flags)):
        same(run(KERNELS[name], *operands, mesh={"x": 2}), expected(name, *operands))

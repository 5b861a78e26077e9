"""Elementwise functions are NumPy's of the same name, on every mesh, for every element type."""

import itertools
import warnings

import numpy as np
import pytest
from kernels.conftest import COLLECTIVE

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.elementwise.elementwise import elementwise

KERNELS = {kernel.name: kernel for kernel in elementwise()}

# Units in the last place of float32 and float64 by which a function may differ from NumPy's; all others are exact.
ULPS = dict.fromkeys(("sin", "cos", "tan", "arctan", "arctan2", "hypot", "radians", "degrees", "exp2", "power"), 4)
ULPS |= dict.fromkeys(("float_power", "exp", "log", "log2", "log10", "log1p", "arcsin", "arccos", "angle"), 4)
ULPS |= dict.fromkeys(("arcsinh", "arccosh", "arctanh", "expm1"), 8)
ULPS |= {"sinh": 5, "cosh": 5, "tanh": 3, "cbrt": 3}
# Sums of logarithms near zero are as wrong as their terms.
NEAR_ZERO = ("logaddexp", "logaddexp2")


def expected(name, *operands):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ml_dtypes warns of int4 by zero whatever errstate says
        return np.asarray(getattr(np, name)(*operands))


def assert_close(name, actual, reference):
    """Checks a result within the bound of a function; for complex numbers in units of their magnitude."""
    assert (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
    if name in NEAR_ZERO or reference.dtype.kind == "c":
        eps = {2: 2.0**-6, 4: 2.0**-20}.get(reference.real.dtype.itemsize, 2.0**-45)
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


def called(run, values, name, dtype, mesh):
    """A call of a function of a type, and its name with NumPy's result; None where NumPy and the kernel refuse."""
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
        return None
    return run.call(KERNELS[name], *operands, mesh=mesh), (name, reference)


def check(run, calls):
    """Compares the results of calls with NumPy's within the bounds of functions, where padding holds NaN."""
    run.check_together(filter(None, calls), lambda actual, named: assert_close(named[0], actual, named[1]), np.nan)


def numpys(run, name, *operands, **how):
    """A call, and NumPy's result."""
    return run.call(KERNELS[name], *operands, **how), expected(name, *operands)


QUICK = [  # with padding; tests/accuracy has every function, of types that are not here, at 4,096 elements
    *itertools.product(("floor_divide", "remainder", "maximum", "less"), ("int8", "float32")),
    *itertools.product(("left_shift", "right_shift"), ("int8", "uint64")),
    *(("power", "int16"), ("add", "bool"), ("sinh", "float64"), ("sign", "complex128"), ("clip", "float32")),
    *(("fmin", "complex64"), ("isnan", "float16"), ("floor", "int8")),
]


def test_elementwise_results_equal_numpys(run, values):
    check(run, [called(run, values, name, np.dtype(dtype), {"x": 8}) for name, dtype in QUICK])


def test_the_largest_divisors_are_not_taken_for_infinities(run, same):
    for dtype, largest in ((np.float32, 3e38), (np.float64, 1.5e308)):
        x, y = np.array([largest, largest / 2, 1.0, np.inf] * 4, dtype), np.array(largest, dtype)
        result = run(KERNELS["divide"], x, y, mesh={"x": 4})
        same(result[[0, 1, 3]], np.array([1, 0.5, np.inf], dtype))  # XLA:CPU takes the third, a subnormal, for zero


PARTS = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
COMPLEX = np.array([complex(a, b) for a in PARTS for b in PARTS])


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


SHAPES = [((61, 3), (3,)), ((), (61, 3)), ((61, 1), (1, 3)), ((1, 3), (61, 3)), ((2, 5, 3), (5, 1)), ((0, 3), (1, 3))]


def test_operands_broadcast_and_are_compared_by_value(run, values):
    how, half = {"mesh": {"x": 8}}, np.float32(0.5)
    pairs = [(values.normal(first), values.normal(second)) for first, second in SHAPES]
    x, y, condition = values.normal((61, 3)), values.normal((3,)), values.small((61, 1), np.dtype(np.int8))
    signed, unsigned = np.array([-1, 2**62, 5, -(2**63)]), np.array([2**64 - 1, 2**62, 4, 2**63], np.uint64)
    calls = [
        *(numpys(run, "subtract", *pair, **how) for pair in pairs),
        numpys(run, "where", condition, x, y, **how),
        numpys(run, "clip", x, y, half, **how),
        (run.call(KERNELS["clip"], x, None, half, **how), np.clip(x, None, half)),
        (run.call(KERNELS["clip"], x, **how), x),
        *(numpys(run, name, signed, unsigned, mesh={"x": 4}) for name in ("less", "greater_equal")),
        numpys(run, "equal", unsigned, signed, mesh={"x": 4}),
        numpys(run, "sign", COMPLEX, mesh={"x": 4}),
    ]
    run.check_together(calls, padding=np.nan)


def test_mesh_axes_of_one_device_gather_nothing(run):
    x = ArrayType((64, 64), np.dtype("float32"))
    for mesh, spec, out_spec in (({"a": 1}, ("a", None), (None, None)), ({"a": 8, "b": 1}, (("a", "b"),), ("a",))):
        how = {"mesh": mesh, "in_specs": [spec], "out_specs": [out_spec]}
        assert not COLLECTIVE.search(run.program(KERNELS["sin"], x, **how).compiled.as_text())


def test_nothing_moves_where_the_specs_agree(run):
    x, row = ArrayType((61, 12), np.dtype("float32")), ArrayType((12,), np.dtype("float32"))
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]}
    for name, operands in [("sin", [x]), ("add", [x, x]), ("maximum", [x, row]), ("where", [x, x, row])]:
        assert not COLLECTIVE.search(run.program(KERNELS[name], *operands, **how).text), name
    assert COLLECTIVE.search(run.program(KERNELS["add"], x, x, **how | {"in_specs": [("a", "b"), ("b", "a")]}).text)


def test_unset_specs_follow_the_operands(run):
    x, row, scalar = (ArrayType(shape, np.dtype("float32")) for shape in ((61, 12), (12,), ()))

    def specs(*operands, in_specs=()):
        problem = run.resolve(KERNELS["add"], *operands, mesh={"a": 4, "b": 2}, in_specs=in_specs).problem
        return problem.in_specs, problem.out_specs[0]

    assert specs(x, row) == (((("a", "b"), ()), ((),)), (("a", "b"), ()))
    assert specs(x, row, in_specs=[("a", "b")]) == (((("a",), ("b",)), (("b",),)), (("a",), ("b",)))
    assert specs(scalar, x, in_specs=[None, (None, "a")]) == (((), ((), ("a",))), ((), ("a",)))
    assert specs(x, x, in_specs=[None, ("b",)]) == (((("b",), ()), (("b",), ())), (("b",), ()))

"""Functions that compare, choose or round are exact for subnormal numbers, which XLA:CPU otherwise treats as zero."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from pairs import pairs_of

from shardcall_server.kernels.elementwise.elementwise import elementwise
from shardcall_server.kernels.elementwise.reductions import reductions
from shardcall_server.kernels.stencils.cumsum import CumSum

KERNELS = {kernel.name: kernel for kernel in (*elementwise(), *reductions())}
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
SELECTIONS = ("maximum", "minimum", "fmax", "fmin", "where", "clip")
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
OTHERS = ("sign", "absolute", "negative", "positive", "floor", "ceil", "trunc", "rint", "copysign", "sqrt")
TESTS = ("signbit", "isnan", "isinf", "isfinite")
EXACT = (*COMPARISONS, *SELECTIONS, *LOGICAL, *OTHERS, *TESTS)
REDUCTIONS = ("max", "min", "argmax", "argmin", "any", "all")
WIDE, NARROW = ("float32", "float64"), ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def edges(dtype):
    """Zeros, the smallest and largest subnormal numbers, the smallest normal one, 1 and NaN, of both signs."""
    info = ml_dtypes.finfo(dtype)
    subnormal, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    some = np.array([0, subnormal, 2 * subnormal, normal - subnormal, normal, 1])
    return np.concatenate([some, -some, [np.nan]]).astype(dtype)


def triples(dtype, count=4_099):
    """All pairs of `edges`, repeated with every third one."""
    x, y, z = zip(*((x, y, z) for x, y in itertools.product(edges(dtype), repeat=2) for z in edges(dtype)), strict=True)
    return [np.resize(np.array(some, dtype), count) for some in (x, y, z)]


def expected(name, *operands, **how):
    with np.errstate(all="ignore"):
        return np.asarray(getattr(np, name)(*operands, **how))


def check(run, same, name, operands, mesh):
    operands = operands[: len(KERNELS[name].operands)]
    compare(same, run(KERNELS[name], *operands, mesh=mesh), expected(name, *operands))


def compare(same, result, reference):
    if reference.dtype == np.bool_:
        same(result, reference)
        return
    # NumPy compares exactly; the choice between two zeros depends on the machine.
    same(result.astype(np.float64), reference.astype(np.float64))
    assert result.dtype == reference.dtype


def named_type(name, element_types):
    return next(dtype for dtype in element_types if dtype.name == name)


@pytest.mark.parametrize("dtype_", WIDE)
def test_elementwise_results_are_exact_for_subnormal_numbers(run, same, dtype_):
    operands = triples(np.dtype(dtype_))
    calls = {name: operands[: len(KERNELS[name].operands)] for name in EXACT}
    for name, result in run.together([(KERNELS[name], *operands) for name, operands in calls.items()]).items():
        compare(same, result, expected(name, *calls[name]))


@pytest.mark.parametrize(
    ("dtype_", "name"),
    pairs_of(["bfloat16", "float8_e5m2"], ["less", "maximum", "where", "sign", "logical_not"]),
)
def test_subnormal_numbers_of_narrow_types_are_distinct(run, same, element_types, name, dtype_):
    check(run, same, name, triples(named_type(dtype_, element_types)), {"x": 3})


@pytest.mark.long
@pytest.mark.parametrize("count", [7, 4_099])
@pytest.mark.parametrize("name", EXACT)
def test_elementwise_results_are_exact_for_every_floating_point_type(run, same, element_types, name, count):
    for dtype in (*WIDE, *NARROW):
        operands = triples(named_type(dtype, element_types), count)
        try:
            expected(name, *operands[: len(KERNELS[name].operands)])
        except TypeError:
            continue
        for mesh in ({"x": 1}, {"x": 3}, {"a": 4, "b": 2}):
            check(run, same, name, operands, mesh)
        run.programs.clear()


@pytest.mark.long
@pytest.mark.parametrize("name", [*COMPARISONS, "maximum", "minimum"])
def test_every_pair_of_float8_values_is_compared_as_in_numpy(run, same, element_types, name):
    for dtype in NARROW[2:]:
        every = np.arange(256, dtype=np.uint8).view(named_type(dtype, element_types))
        check(run, same, name, [a.ravel() for a in np.meshgrid(every, every)], {"x": 8})


@pytest.mark.parametrize(("dtype_", "name"), pairs_of(WIDE, REDUCTIONS))
def test_reductions_are_exact_for_subnormal_numbers(run, same, name, dtype_):
    x = np.stack(triples(np.dtype(dtype_))[:2]).T  # rows of two
    x = x[~np.isnan(x).any(axis=1)]
    same(run(KERNELS[name], x, mesh={"x": 2}, axis=1), expected(name, x, axis=1))
    column = x[np.isin(x[:, 0], edges(dtype_)[1:3]), :1]
    same(run(KERNELS[name], column, mesh={"x": 2}, axis=0), expected(name, column, axis=0))


@pytest.mark.parametrize(
    ("dtype_", "name"),
    pairs_of(["complex64", "complex128"], ["less", "equal", "maximum", "logical_and", "where"]),
)
def test_parts_of_complex_numbers_may_be_subnormal(run, same, name, dtype_):
    parts = edges(np.empty(0, dtype_).real.dtype)
    every = np.array([complex(a, b) for a, b in itertools.product(parts, repeat=2)], dtype_)
    x, y = (a.ravel() for a in np.meshgrid(every, every))
    operands = (x, y, x[::-1].copy())[: len(KERNELS[name].operands)]
    result, reference = run(KERNELS[name], *operands, mesh={"x": 1}), expected(name, *operands)
    same(result.real, reference.real)
    same(result.imag, reference.imag)


@pytest.mark.parametrize("name", ["less", "equal", "fmin", "multiply"])
def test_a_subnormal_float32_is_a_normal_float64(run, same, name):
    x, y = triples(np.dtype(np.float32))[:2]
    y = y.astype(np.float64) * (1 + 2**-30)
    y = np.where(abs(y) < 1e-300, 0, y)
    same(run(KERNELS[name], x, y, mesh={"x": 2}), expected(name, x, y))


@pytest.mark.parametrize("name", ["log", "log2", "log10"])
def test_logarithms_of_subnormal_numbers_are_numpys(run, name):
    for dtype in WIDE:
        x = np.random.default_rng(5).integers(1, 2**20, 4_099) * float(np.finfo(dtype).smallest_subnormal)
        x = np.concatenate([x, -x[:5], edges(dtype)]).astype(dtype)
        result, reference = run(KERNELS[name], x, mesh={"x": 1}), expected(name, x)
        np.testing.assert_allclose(result, reference, rtol=4 * np.finfo(dtype).eps)


def test_a_subnormal_number_is_truthy(run, same):
    for dtype in WIDE:
        x = np.full(5, np.finfo(dtype).smallest_subnormal, dtype)
        same(run(KERNELS["sum"], x, mesh={"x": 2}, dtype="bool"), np.asarray(True))
        same(run(CumSum(), x, mesh={"x": 2}, dtype="bool"), np.ones(5, bool))


@pytest.mark.parametrize(("dtype_", "devices"), pairs_of([np.float32, np.float64], [1, 8]))
def test_cube_roots_and_angles_of_subnormal_numbers_are_numpys(run, dtype_, devices):
    y, x, z = triples(np.dtype(dtype_))
    x[::3] *= dtype_(1.7)
    mesh = {"x": devices}
    np.testing.assert_allclose(run(KERNELS["cbrt"], y, mesh=mesh), np.cbrt(y), rtol=2 * np.finfo(dtype_).eps)
    for beside in (x, z, np.full_like(x, -2.5), np.full_like(x, -1e30), np.full_like(x, 1e-30)):
        result, reference = run(KERNELS["arctan2"], y, beside, mesh=mesh), np.arctan2(y, beside)
        assert_near_or_flushed(result, reference)
        number = np.empty(y.shape, np.result_type(dtype_, np.complex64))
        number.real, number.imag = beside, y
        assert_near_or_flushed(run(KERNELS["angle"], number, mesh=mesh), np.angle(number))
        assert_near_or_flushed(run(KERNELS["log"], number, mesh=mesh).imag, np.angle(number))


def assert_near_or_flushed(result, reference):
    """Checks a result within 4 units in the last place; subnormal results may be zero."""
    info = np.finfo(reference.dtype)
    np.testing.assert_allclose(result, reference, rtol=4 * info.eps, atol=info.smallest_normal)
    assert (np.signbit(result) == np.signbit(reference))[~np.isnan(reference)].all()

"""The tests of `test_subnormals.py` that take long."""

import numpy as np
import pytest
from kernels.test_subnormals import KERNELS, NARROW, WIDE, edges, expected, triples
from pairs import pairs_of

from shardcall_server.kernels.stencils.cumsum import CumSum

pytestmark = pytest.mark.long

COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


SELECTIONS = ("maximum", "minimum", "fmax", "fmin", "where", "clip")


LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")


OTHERS = ("sign", "absolute", "negative", "positive", "floor", "ceil", "trunc", "rint", "copysign", "sqrt")


TESTS = ("signbit", "isnan", "isinf", "isfinite")


EXACT = (*COMPARISONS, *SELECTIONS, *LOGICAL, *OTHERS, *TESTS)


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
    results = run.together(run.call(KERNELS[name], *operands) for name, operands in calls.items())
    for name, result in zip(calls, results, strict=True):
        compare(same, result, expected(name, *calls[name]))


@pytest.mark.parametrize(
    ("dtype_", "name"),
    pairs_of(["bfloat16", "float8_e5m2"], ["less", "maximum", "where", "sign", "logical_not"]),
)
def test_subnormal_numbers_of_narrow_types_are_distinct(run, same, element_types, name, dtype_):
    check(run, same, name, triples(named_type(dtype_, element_types)), {"x": 3})


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


@pytest.mark.parametrize("name", [*COMPARISONS, "maximum", "minimum"])
def test_every_pair_of_float8_values_is_compared_as_in_numpy(run, same, element_types, name):
    for dtype in NARROW[2:]:
        every = np.arange(256, dtype=np.uint8).view(named_type(dtype, element_types))
        check(run, same, name, [a.ravel() for a in np.meshgrid(every, every)], {"x": 8})


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

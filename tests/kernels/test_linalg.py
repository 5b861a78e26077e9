"""The rows of the table for linear algebra and Fourier transforms give NumPy's results in every layout.

Factors are unique up to signs, so their products are compared, within a few units of the largest element for each row
of the matrix.
"""

import numpy as np
import pytest
from kernels.conftest import KERNELS, LAYOUTS

from shardcall_core.layouts.layout import ArrayType

FUNCTIONS = ("cholesky", "inv", "det", "slogdet", "eigh", "eigvalsh", "svd", "svdvals", "qr")


def matrices(values, shape, dtype):
    """Matrices of normal values, whose condition numbers are small."""
    x = values.normal(shape, np.float64) + (1j * values.normal(shape, np.float64) if "complex" in dtype else 0)
    return (x + 8 * np.eye(*shape[-2:])).astype(dtype)


def positive(x):
    return (x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(x.shape[-1])).astype(x.dtype)


def close(results, expected):
    assert (results.shape, results.dtype) == (expected.shape, expected.dtype)
    eps = np.finfo(expected.dtype).eps
    np.testing.assert_allclose(results, expected, rtol=200 * eps, atol=200 * eps * np.max(np.abs(expected), initial=1))


def test_the_layout_of_one_of_several_results(run, values):
    how = {"mesh": {"a": 4, "b": 2}, "out_specs": [("b", "a")]}
    u, s, vh = run(KERNELS["svd"], x := values.normal((5, 3), np.float64), **how)
    close((u[:, :3] * s) @ vh, x)
    assert [factor.shape for factor in run(KERNELS["svd"], np.zeros((0, 4)), **how)] == [(0, 0), (0,), (4, 4)]


def test_integers_are_computed_in_float64(run, values):
    for dtype in ("int64", "bool"):
        x = np.eye(4, dtype=dtype)
        close(run(KERNELS["det"], x, mesh={"x": 2}), np.linalg.det(x))


def solutions(run, values, layout):
    """Calls of `solve` and `solve_triangular`, and NumPy's solutions."""
    (mesh, spec), x = layout, matrices(values, (5, 6, 6), "float64")
    how = {"mesh": mesh, "in_specs": [spec]}
    for shape in ((6,), (5, 6, 2), (6, 2)):
        b = values.normal(shape)
        yield run.call(KERNELS["solve"], x, b, **how), np.linalg.solve(x, b)
    x = matrices(values, (5, 6, 6), "complex128")
    for parameters in ({"lower": True}, {"trans": "T", "unit_diagonal": True}, {"lower": True, "trans": "C"}):
        read = np.tril(x) if parameters.get("lower") else np.triu(x)
        if parameters.get("unit_diagonal"):
            read = np.where(np.eye(6) == 1, 1, read)
        read = {"N": read, "T": read.mT, "C": np.conj(read.mT)}[parameters.get("trans", "N")]
        for shape in ((6,), (5, 6, 2)):
            b = values.normal(shape)
            yield run.call(KERNELS["solve_triangular"], x, b, **how, **parameters), np.linalg.solve(read, b)


@pytest.mark.parametrize("layout", LAYOUTS[2:])
def test_solutions_are_numpys(run, values, layout):
    run.check_together(solutions(run, values, layout), close)


def test_only_one_triangle_is_read(run, values):
    x, cases = positive(matrices(values, (5, 5), "complex128")), []
    for upper in (False, True):
        marred = np.where(np.tril(np.ones((5, 5), bool), -1) if upper else np.triu(np.ones((5, 5), bool), 1), 9, x)
        for name, how in (("cholesky", {"upper": upper}), ("eigvalsh", {"UPLO": "U" if upper else "L"})):
            cases.append((run.call(KERNELS[name], marred, mesh={"x": 2}, **how), getattr(np.linalg, name)(x, **how)))
    run.check_together(cases, close)


def test_the_strategy_follows_the_layout(run):
    how = {"mesh": {"x": 8}}
    batch, matrix = ArrayType((16, 4, 4), np.dtype("float64")), ArrayType((16, 16), np.dtype("float64"))
    for name in FUNCTIONS:
        assert run.resolve(KERNELS[name], batch, **how).strategy.name == "blocks"
        assert run.resolve(KERNELS[name], matrix, **how).strategy.name == "one_device"
    assert "all-gather" not in run.program(KERNELS["eigh"], batch, **how).text


TRANSFORMS = ("fft", "ifft", "rfft", "irfft")
HOWS = [{"axis": 0, "norm": "backward", "n": None}, {"axis": -1, "norm": "ortho", "n": 12}]


def near(actual, expected):
    """Checks shape and type, and that errors are within a few units of the largest value."""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    eps = np.finfo(expected.dtype).eps
    np.testing.assert_allclose(actual, expected, rtol=0, atol=16 * eps * np.max(np.abs(expected), initial=0))


def transforms(run, x, layout, hows):
    """Calls of every transform, and NumPy's results."""
    mesh, spec = layout
    for name in TRANSFORMS:
        for how in hows:
            call = run.call(KERNELS[name], x, mesh=mesh, in_specs=[spec[: x.ndim]], **how)
            yield call, getattr(np.fft, name)(x, **how)


@pytest.mark.parametrize("number", range(len(LAYOUTS)))
def test_transforms_are_numpys(run, values, number):
    x = values.normal((5, 4, 9), np.float64)
    run.check_together(transforms(run, x, LAYOUTS[number], [HOWS[number % 2]]), near, np.nan)


def test_transforms_of_nothing(run):
    run.check_together(transforms(run, np.zeros((0, 5)), ({"x": 3}, ()), [{}]), near)


def test_the_strategy_of_transforms_follows_the_layout(run):
    x, row = ArrayType((16, 6), np.dtype("float32")), ArrayType((16,), np.dtype("float32"))
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)]}
    assert run.resolve(KERNELS["fft"], x, **how).strategy.name == "blocks"
    assert "all-" not in run.program(KERNELS["fft"], x, **how).text
    assert run.resolve(KERNELS["fft"], x, **how, axis=0).strategy.name == "all_to_all"
    text = run.program(KERNELS["fft"], x, **how, axis=0).text
    assert "all-to-all" in text
    assert "all-gather" not in text
    assert run.resolve(KERNELS["fft"], row, mesh={"x": 8}).strategy.name == "one_device"

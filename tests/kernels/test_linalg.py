"""The rows of the table for linear algebra give NumPy's results in every layout.

Factors are unique up to signs, so their products are compared, within a few units of the largest element for each row
of the matrix.
"""

import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
LAYOUTS = [
    ({"x": 8}, ("x", None, None)),
    ({"x": 3}, (None, "x", None)),
    ({"a": 2, "b": 2}, ("b", None, "a")),
]
SHORT = [LAYOUTS[2], *(pytest.param(*case, marks=pytest.mark.long) for case in LAYOUTS[:2])]
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
    bound = 200 * eps * np.max(np.abs(expected), initial=1)
    np.testing.assert_allclose(results, expected, rtol=200 * eps, atol=bound)


def test_the_layout_of_one_of_several_results(run, values):
    how = {"mesh": {"a": 4, "b": 2}, "out_specs": [("b", "a")]}
    u, s, vh = run(KERNELS["svd"], x := values.normal((5, 3), np.float64), **how)
    close((u[:, :3] * s) @ vh, x)
    shapes = [factor.shape for factor in run(KERNELS["svd"], np.zeros((0, 4)), **how)]
    assert shapes == [(0, 0), (0,), (4, 4)]


def test_integers_are_computed_in_float64(run, values):
    for dtype in ("int64", "bool"):
        x = np.eye(4, dtype=dtype)
        close(run(KERNELS["det"], x, mesh={"x": 2}), np.linalg.det(x))


@pytest.mark.parametrize(("mesh", "spec"), SHORT)
@pytest.mark.parametrize("shape", [(6,), (5, 6, 2), pytest.param((6, 2), marks=pytest.mark.long)])
def test_solutions_are_numpys(run, values, mesh, spec, shape):
    x, b = matrices(values, (5, 6, 6), "float64"), values.normal(shape, np.float32)
    close(run(KERNELS["solve"], x, b, mesh=mesh, in_specs=[spec]), np.linalg.solve(x, b))


@pytest.mark.parametrize(("upper", "name"), pairs_of([False, True], ["cholesky", "eigvalsh"]))
def test_only_one_triangle_is_read(run, values, upper, name):
    x = positive(matrices(values, (5, 5), "complex128"))
    marred = np.where(np.tril(np.ones((5, 5), bool), -1) if upper else np.triu(np.ones((5, 5), bool), 1), 9, x)
    how = {"upper": upper} if name == "cholesky" else {"UPLO": "U" if upper else "L"}
    close(run(KERNELS[name], marred, mesh={"x": 2}, **how), getattr(np.linalg, name)(x, **how))


X, ROWS = ArrayType((5, 4, 4), np.dtype("float32")), ArrayType((5, 3, 4), np.dtype("float32"))
HALVES = ArrayType((4, 4), np.dtype("float16"))


@pytest.mark.parametrize(
    ("name", "operands", "parameters", "field", "reason"),
    [
        ("inv", (ROWS,), {}, "x", "INVALID_OPERAND"),
        ("det", (ArrayType((4,), np.dtype("float32")),), {}, "x", "INVALID_OPERAND"),
        ("svd", (HALVES,), {}, "x", "UNSUPPORTED_ELEMENT_TYPE"),
        ("eigh", (X,), {"UPLO": "X"}, "UPLO", "INVALID_PARAMETER"),
        ("qr", (X,), {"mode": "raw"}, "mode", "INVALID_PARAMETER"),
        ("solve", (X, ROWS), {}, "b", "INVALID_OPERAND"),
        ("solve", (X, ArrayType((3, 4, 1), np.dtype("float32"))), {}, "b", "INVALID_OPERAND"),
    ],
)
def test_refusals_name_the_argument(refused, name, operands, parameters, field, reason):
    error = refused(KERNELS[name], *operands, mesh={"x": 2}, **parameters)
    assert (error.field, error.reason) == (field, Reason[reason])


def test_the_strategy_follows_the_layout(run):
    how = {"mesh": {"x": 8}}
    batch, matrix = ArrayType((16, 4, 4), np.dtype("float64")), ArrayType((16, 16), np.dtype("float64"))
    for name in FUNCTIONS:
        assert run.resolve(KERNELS[name], batch, **how).strategy.name == "blocks"
        assert run.resolve(KERNELS[name], matrix, **how).strategy.name == "one_device"
    text = run.program(KERNELS["eigh"], batch, **how).text
    assert "all-gather" not in text

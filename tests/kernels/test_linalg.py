"""The rows of the table for linear algebra give NumPy's results in every layout.

Factors are unique up to signs, so their products are compared, within a few units of the largest element for each row
of the matrix.
"""

import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import CallError, Reason
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


def check(run, name, x, **how):
    """Compares a call with NumPy."""
    results = run(KERNELS[name], x, **how)
    if name == "eigh":
        values, vectors = results
        close(values, np.linalg.eigvalsh(x))
        close(vectors * values[..., None, :], x @ vectors)
        close(
            np.conj(np.swapaxes(vectors, -1, -2)) @ vectors,
            np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape),
        )
    elif name == "svd":
        u, s, v = results
        close(s, np.linalg.svd(x).S)
        assert [result.shape for result in results] == [result.shape for result in np.linalg.svd(x)]
        count = s.shape[-1]
        close((u[..., :count] * s[..., None, :]) @ v[..., :count, :], x)
    elif name == "qr":
        q, r = results
        assert [result.shape for result in results] == [result.shape for result in np.linalg.qr(x)]
        close(q @ r, x)
        assert not np.tril(r, -1).any()
    elif name == "slogdet":
        for ours, expected in zip(results, np.linalg.slogdet(x), strict=True):
            close(ours, expected)
    else:
        close(results, getattr(np.linalg, name)(x))


@pytest.mark.parametrize(("dtype_", "name"), pairs_of(["float32", "complex128"], FUNCTIONS))
def test_functions_of_matrices_are_numpys(run, values, name, dtype_):
    check_matrices(run, values, *LAYOUTS[2], name, dtype_)


@pytest.mark.long
@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype_", ["float32", "float64", "complex64", "complex128"])
def test_functions_of_matrices_are_numpys_in_every_layout(run, values, mesh, spec, name, dtype_):
    check_matrices(run, values, mesh, spec, name, dtype_)


def check_matrices(run, values, mesh, spec, name, dtype_):
    x = matrices(values, (5, 6, 6), dtype_)
    x = positive(x) if name in ("cholesky", "eigh", "eigvalsh") else x
    check(run, name, x, mesh=mesh, in_specs=[spec], padding=np.nan)


@pytest.mark.parametrize("shape", [(7, 4), pytest.param((4, 7), marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["svd", "svdvals", "qr"])
def test_matrices_that_are_not_square(run, values, shape, name):
    check(run, name, matrices(values, shape, "float64"), mesh={"x": 3})


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "det"])  # each factor of it rounds
def test_large_matrices(run, values, name):
    x = matrices(values, (96, 96), "float64") + 20 * np.eye(96)
    check(run, name, positive(x) if name in ("cholesky", "eigh", "eigvalsh") else x, mesh={"x": 3})


@pytest.mark.long
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0)])
def test_no_matrices(run, name, shape):
    check(run, name, np.zeros(shape), mesh={"x": 3})


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


def test_solutions_of_broadcast_batches(run, values):
    x, b = matrices(values, (1, 6, 6), "complex64"), values.normal((4, 5, 6, 2), np.float32)
    close(run(KERNELS["solve"], x, b, mesh={"x": 3}), np.linalg.solve(x, b))


@pytest.mark.parametrize(("mesh", "spec"), SHORT)
@pytest.mark.parametrize("kind", ["float32", pytest.param("complex128", marks=pytest.mark.long)])
def test_eigenvalues_of_general_matrices_are_numpys(run, values, mesh, spec, kind):
    x = matrices(values, (5, 6, 6), kind)
    how = {"mesh": mesh, "in_specs": [spec], "padding": np.nan}
    computed, vectors = run(KERNELS["eig"], x, **how)
    required = np.linalg.eigvals(x).astype(computed.dtype)
    close(np.sort_complex(computed.round(4)), np.sort_complex(required.round(4)))
    close(vectors * computed[..., None, :], x @ vectors)
    close(np.linalg.norm(vectors, axis=-2), np.ones((5, 6), x.real.dtype))
    close(np.sort_complex(run(KERNELS["eigvals"], x, **how).round(4)), np.sort_complex(required.round(4)))


TRIANGLES = [
    {"lower": True},
    {"trans": "T", "unit_diagonal": True},
    pytest.param({"lower": True, "trans": "C"}, marks=pytest.mark.long),
]


@pytest.mark.parametrize("how", TRIANGLES)
@pytest.mark.parametrize(("mesh", "spec"), SHORT)
@pytest.mark.parametrize("shape", [(6,), pytest.param((5, 6, 2), marks=pytest.mark.long)])
def test_solutions_of_triangular_matrices(run, values, mesh, spec, shape, how):
    x, b = matrices(values, (5, 6, 6), "complex128"), values.normal(shape, np.float32)
    read = np.tril(x) if how.get("lower") else np.triu(x)
    if how.get("unit_diagonal"):
        read = np.where(np.eye(6) == 1, 1, read)
    read = {"N": read, "T": read.mT, "C": np.conj(read.mT)}[how.get("trans", "N")]
    close(run(KERNELS["solve_triangular"], x, b, mesh=mesh, in_specs=[spec], **how), np.linalg.solve(read, b))


@pytest.mark.parametrize(("upper", "name"), pairs_of([False, True], ["cholesky", "eigvalsh"]))
def test_only_one_triangle_is_read(run, values, upper, name):
    x = positive(matrices(values, (5, 5), "complex128"))
    marred = np.where(np.tril(np.ones((5, 5), bool), -1) if upper else np.triu(np.ones((5, 5), bool), 1), 9, x)
    how = {"upper": upper} if name == "cholesky" else {"UPLO": "U" if upper else "L"}
    close(run(KERNELS[name], marred, mesh={"x": 2}, **how), getattr(np.linalg, name)(x, **how))


SINGULAR = np.stack([np.eye(3), np.ones((3, 3)), np.eye(3)])


@pytest.mark.parametrize(
    ("name", "x", "says"),
    [
        ("inv", SINGULAR, "singular"),
        ("cholesky", -SINGULAR, "positive definite"),
        ("eigh", SINGULAR * np.nan, "do not converge"),
        ("svdvals", SINGULAR * np.nan, "do not converge"),
    ],
)
@pytest.mark.parametrize("spec", [("x", None, None), pytest.param((None, None, "x"), marks=pytest.mark.long)])
def test_matrices_without_a_result_are_refused(run, name, x, says, spec):
    with pytest.raises(CallError, match=says) as raised:
        run(KERNELS[name], x, mesh={"x": 2}, in_specs=[spec])
    assert raised.value.field == "x"


def test_equations_without_a_solution_are_refused(run):
    with pytest.raises(CallError, match="singular"):
        run(KERNELS["solve"], SINGULAR, np.ones(3), mesh={"x": 2})


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

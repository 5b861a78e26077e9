"""The tests of `test_linalg.py` that take long."""

import numpy as np
import pytest
from kernels.test_linalg import FUNCTIONS, KERNELS, LAYOUTS, SHORT, close, matrices, positive
from pairs import pairs_of

from shardcall_core.call_error import CallError

pytestmark = pytest.mark.long


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


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "det"])  # each factor of it rounds
def test_large_matrices(run, values, name):
    x = matrices(values, (96, 96), "float64") + 20 * np.eye(96)
    check(run, name, positive(x) if name in ("cholesky", "eigh", "eigvalsh") else x, mesh={"x": 3})


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0)])
def test_no_matrices(run, name, shape):
    check(run, name, np.zeros(shape), mesh={"x": 3})


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

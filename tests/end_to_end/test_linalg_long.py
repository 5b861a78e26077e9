"""The tests of `test_linalg.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_linalg import X

import shardcall as sc

pytestmark = pytest.mark.long

SPECS = [sc.P("x"), pytest.param(sc.P(None, "x"), marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


def same(ours, expected):
    if isinstance(expected, tuple | list):
        for item, expected_item in zip(ours, expected, strict=True):
            same(item, expected_item)
        return
    actual, expected = np.asarray(ours.get() if isinstance(ours, sc.RemoteArray) else ours), np.asarray(expected)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    tolerance = 2e-4 if expected.dtype in (np.float32, np.complex64) else 1e-11
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


SHORT = {
    "inv": np.linalg.inv,
    "slogdet": np.linalg.slogdet,
    "eig": lambda x: np.linalg.eig(x[0]).eigenvalues.sum(),
    "eigvals, real": lambda x: np.sort(np.linalg.eigvals(x @ x.mT) if x.dtype.kind != "c" else x.real[0, 0]),
    "solve": lambda x: np.linalg.solve(x, X[..., 0:2]),
    "pinv": np.linalg.pinv,
    "norm": lambda x: np.linalg.norm(x, axis=1),
    "matrix_norm": lambda x: np.linalg.matrix_norm(x, ord=2),
    "matrix_power": lambda x: np.linalg.matrix_power(x, 3),
    "tensorinv": lambda x: np.linalg.tensorinv(x[0].reshape(4, 2, 2), 1),
    "tensorsolve": lambda x: np.linalg.tensorsolve(x[1].reshape(2, 2, 4), X[0, :2, :2]),
}


LONG = {
    "det": np.linalg.det,
    "cholesky": lambda x: np.linalg.cholesky(x @ np.conj(np.swapaxes(x, -1, -2))),
    "eigvalsh": np.linalg.eigvalsh,
    "svdvals": np.linalg.svdvals,
    "singular values": lambda x: np.linalg.svd(x, compute_uv=False),
    "pinv of columns": lambda x: np.linalg.pinv(x[..., :2], rcond=0.1),
    "pinv of a tolerance": lambda x: np.linalg.pinv(x, rtol=0.5),
    "matrix_rank": np.linalg.matrix_rank,
    "matrix_rank of a tolerance": lambda x: np.linalg.matrix_rank(x, 3.0),
    "matrix_rank of a vector": lambda x: np.linalg.matrix_rank(x[0, 0]),
    **{f"cond {p}": lambda x, p=p: np.linalg.cond(x, p) for p in (None, -2, 1, "fro")},
    "lstsq": lambda x: np.linalg.lstsq(x[0, :, :2], X[0, 0])[:3],
    "lstsq of matrices": lambda x: np.linalg.lstsq(x[0], X[0]),
    "matrix_power of -2": lambda x: np.linalg.matrix_power(x, -2),
    "matrix_power of 0": lambda x: np.linalg.matrix_power(x, 0),
    "matrix_power of 1": lambda x: np.linalg.matrix_power(x, 1),
    "tensorinv of four axes": lambda x: np.linalg.tensorinv(x[2].reshape(2, 2, 1, 4)),
    "tensorsolve of axes": lambda x: np.linalg.tensorsolve(x[0].reshape(2, 4, 2), X[0, 0], axes=(0, 2)),
    "multi_dot": lambda x: np.linalg.multi_dot([x[0], X[1], x[2][:, :2]]),
    "norm of all": np.linalg.norm,
    "norm of a matrix": lambda x: np.linalg.norm(x[0], 1),
    **{f"norm {p}": lambda x, p=p: np.linalg.norm(x, p, axis=0) for p in (0, 1, 2, 3.5, np.inf, -np.inf)},
    **{
        f"matrix norm {p}": lambda x, p=p: np.linalg.norm(x, p, axis=(2, 0), keepdims=True)
        for p in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
    },
    "matrix norms": lambda x: np.linalg.norm(x, -1, axis=(0, 1)),
    "vector_norm": lambda x: np.linalg.vector_norm(x, axis=(0, 2), ord=1, keepdims=True),
    "matrix_norm": np.linalg.matrix_norm,
    "cross": lambda x: np.linalg.cross(x[..., :3], X[..., 1:]),
    "cross of another axis": lambda x: np.linalg.cross(x, X, axis=0),
    "diagonal": lambda x: np.linalg.diagonal(x, offset=1),
    "trace": np.linalg.trace,
    "matmul": lambda x: np.linalg.matmul(x, X),
    "matrix_transpose": np.linalg.matrix_transpose,
    "outer": lambda x: np.linalg.outer(x[0, 0], X[0, 1]),
    "tensordot": lambda x: np.linalg.tensordot(x, X, axes=((0, 1), (0, 2))),
    "vecdot": lambda x: np.linalg.vecdot(x, X),
}


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("function", SHORT.values(), ids=SHORT)
def test_functions_are_numpys(client, function, spec):
    same(function(client.put(X, mesh=sc.Mesh(x=2), spec=spec)), function(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128, np.int64])
@pytest.mark.parametrize("spec", [sc.P("x"), sc.P(None, None, "x")], ids=str)
@pytest.mark.parametrize("function", [*SHORT.values(), *LONG.values()], ids=[*SHORT, *LONG])
def test_functions_are_numpys_of_every_type(client, function, spec, dtype):
    x = (X + 0.5j * X[::-1] if dtype is np.complex128 else np.round(X * 3)).astype(dtype)
    same(function(client.put(x, mesh=sc.Mesh(x=4), spec=spec)), function(x))


def test_lstsq_of_two_types_is_computed_in_the_common_one(client):
    a = np.round(X[0] * 3).astype(np.float32)
    same(np.linalg.lstsq(client.put(a, mesh=sc.Mesh(x=4)), X[0]), np.linalg.lstsq(a, X[0]))


def test_the_condition_of_a_singular_matrix_is_infinite(client):
    x = np.array([np.zeros((2, 2)), np.eye(2), np.ones((2, 2)), [[1, np.nan], [0, 1]]])
    h = client.put(x, mesh=sc.Mesh(x=2))
    with np.errstate(all="ignore"):
        for p in (1, -1, np.inf, "fro"):
            np.testing.assert_allclose(np.linalg.cond(h, p).get(), np.linalg.cond(x, p))
        np.testing.assert_allclose(np.linalg.cond(h[:2]).get(), np.linalg.cond(x[:2]))
        np.testing.assert_allclose(np.linalg.cond(h[:2], -2).get(), np.linalg.cond(x[:2], -2))
    with pytest.raises(np.linalg.LinAlgError, match="give elements"):
        np.linalg.cond(h[:, :0, :0])


def test_matrices_without_a_result_are_refused(client):
    h = client.put(np.ones((3, 3)), mesh=sc.Mesh(x=3))
    with pytest.raises(np.linalg.LinAlgError, match="singular matrix"):
        np.linalg.inv(h).get()
    with pytest.raises(sc.LinAlgError, match="not positive definite"):
        (np.linalg.cholesky(-h) + 1).get()
    with pytest.raises(np.linalg.LinAlgError, match="singular matrix"):
        np.linalg.solve(h, h[0]).get()
    for call in (lambda: np.linalg.inv(h[:2]), lambda: np.linalg.svd(h[0])):
        with pytest.raises(np.linalg.LinAlgError, match="give"):
            call()
    with pytest.raises(TypeError, match="with axes"):
        np.linalg.tensorinv(h[0, 0])
    for call, says in (
        (lambda: np.linalg.norm(h, "x"), "no order of matrices"),
        (lambda: np.linalg.norm(h, "fro", axis=0), "order of matrices"),
        (lambda: np.linalg.norm(h, 1, axis=(0, 0)), "repeated axis"),
        (lambda: np.linalg.qr(h, "raw"), "mode='raw'"),
        (lambda: np.linalg.cross(h[:, :2], h[:, :2]), "give three"),
        (lambda: np.linalg.multi_dot([h]), "two or more"),
        (lambda: np.linalg.tensorinv(h, 0), "give 1 or more"),
        (lambda: np.linalg.tensorinv(h[:2], 1), "as many elements along the first 1 axes"),
        (lambda: np.linalg.tensorsolve(h, h), "as many elements along the axes of b"),
        (lambda: np.linalg.tensorsolve(h, h[0], axes=(2,)), "give some from 0 to 1"),
        (lambda: np.linalg.matrix_rank(h, 1, rtol=1), "give one of them"),
    ):
        with pytest.raises(ValueError, match=says):
            call()


MATRIX = X[0] + 1j * X[1]


SOLUTIONS = {
    "triangular": lambda linalg, put: linalg.solve_triangular(put(X[0]), X[1]),
    "lower": lambda linalg, put: linalg.solve_triangular(put(X[0]), X[1, 0], lower=True, trans=1, unit_diagonal=True),
    "of a batch": lambda linalg, put: linalg.solve_triangular(put(X), X[1], trans="T"),
    "of complex numbers": lambda linalg, put: linalg.solve_triangular(put(MATRIX), X[1], trans="C", lower=True),
    "Cholesky": lambda linalg, put: linalg.cho_solve(linalg.cho_factor(put(X[0] @ X[0].T)), X[1]),
    "Cholesky, lower": lambda linalg, put: linalg.cho_solve(
        linalg.cho_factor(put(MATRIX @ np.conj(MATRIX.T)), True), X[1, 0]
    ),
}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_solutions_are_scipys(client, name):
    scipy = pytest.importorskip("scipy.linalg")
    result = SOLUTIONS[name](client.xp.linalg, lambda x: client.put(x, mesh={"x": 8}))
    same(result, SOLUTIONS[name](scipy, lambda x: x))


def test_eigenvalues_of_general_matrices(client):
    h = client.put(np.diag(np.arange(5.0)), mesh={"x": 8})
    values, vectors = np.linalg.eig(h)
    assert values.dtype == vectors.dtype == np.float64
    same(np.sort(values), np.arange(5.0))
    assert np.linalg.eigvals(client.put(np.array([[0, 1.0], [-1, 0]]))).dtype == np.complex128
    with pytest.raises(np.linalg.LinAlgError, match="do not converge"):
        np.linalg.eigvals(client.put(np.full((2, 2), np.nan) * 1j)).get()
    with pytest.raises(sc.TracingError):
        client.jit(np.linalg.eigvals).trace(np.eye(3))

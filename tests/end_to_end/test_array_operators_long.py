"""The tests of `test_array_operators.py` that take long."""

import operator

import numpy as np
import pytest
from end_to_end.test_array_operators import INTEGERS, X, same

import shardcall as sc

pytestmark = pytest.mark.long

BINARY = [
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift"),
    *("lt", "le", "gt", "ge", "eq", "ne"),
]


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture(scope="module")
def h(client):
    return client.put(X, mesh=sc.Mesh(x=8))


@pytest.fixture(scope="module")
def k(client):
    return client.put(INTEGERS, mesh=sc.Mesh(x=4, y=2), spec=sc.P("y", "x"))


def operands(name):
    """The operands of this process that an operator is tried with, beside integers or floats on the mesh."""
    if name == "matmul":
        return X, [np.ones((6, 3)), np.ones(6)], [np.ones((4, 13)), np.ones(13)]
    if name in ("and_", "or_", "xor"):
        return INTEGERS, [3, INTEGERS[:1], True], [3, INTEGERS, np.int32(5)]
    if name in ("lshift", "rshift"):
        return abs(INTEGERS) % 7, [2, np.full(6, 3)], [2, np.int64(9)]
    if name == "pow":
        return abs(X), [2, 0.5, X[0]], [2, 2.5, np.float32(2)]
    return X, [2, 0.5, np.float32(2), X[0] + 3, [1.0, 2, 3, 4, 5, 6]], [2, 0.5, np.float64(2), X + 3]


@pytest.mark.parametrize("name", BINARY)
def test_binary_operators(client, name):
    x, right, left = operands(name)
    function, h = getattr(operator, name), client.put(x, mesh=sc.Mesh(x=8))
    for value in right:
        same(function(h, value), function(x, value))
    for value in left:
        same(function(value, h), function(value, x))
    other = x.T if name == "matmul" else x
    same(function(h, client.put(other, mesh=sc.Mesh(x=8))), function(x, other))


def test_unary_operators_and_divmod(h, k):
    for ours, x in ((h, X), (k, INTEGERS)):
        for function in (operator.neg, operator.pos, abs):
            same(function(ours), function(x))
        for part, expected in zip(divmod(ours, 4), divmod(x, 4), strict=True):
            same(part, expected)
        for part, expected in zip(divmod(7, ours * ours + 1), divmod(7, x * x + 1), strict=True):
            same(part, expected)
    same(~k, ~INTEGERS)


def test_integers_are_rounded_to_integers(client, k):
    same(k.round(), INTEGERS.round())
    same(np.round(k, 2), np.round(INTEGERS, 2))
    same(k.round(-1), INTEGERS.round(-1))
    for array in (np.array([15, 127, -5], "i1"), np.array([25, 2**60], "u8")):
        same(np.round(client.put(array), -1), np.round(array, -1))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 1)])
def test_small_and_empty_arrays(client, shape):
    x = np.full(shape, 2.0)
    h = client.put(x)
    same(h + 1, x + 1)
    same(h.sum(), x.sum())
    same(np.sqrt(h), np.sqrt(x))
    same(h.T, x.T)
    if x.size == 1:
        assert float(h) == h.item() == 2.0
        assert int(h) == 2
        assert complex(h) == 2 + 0j
        assert bool(h) is True
    else:
        with pytest.raises(ValueError, match="without elements is ambiguous"):
            bool(h)


def test_attributes_and_methods(h, client):
    same(h.T, X.T)
    same(h.mT, X.T)
    same(h.real, X.real)
    same(h.imag, X.imag)
    assert (h.ndim, h.size, h.nbytes, len(h)) == (2, X.size, X.nbytes, 13)
    assert h.tolist() == X.tolist()
    for i, name in enumerate(("sum", "prod", "mean", "var", "std", "max", "min")):
        how = {"axis": (None, 0, (0, 1), -1)[i % 4], "keepdims": i % 3 == 0}
        same(getattr(h, name)(**how), getattr(X, name)(**how))
    for name in ("argmax", "argmin"):
        same(getattr(h, name)(1), getattr(X, name)(1))
    same((h > 0).any(0), (X > 0).any(0))
    same((h > 0).all(0), (X > 0).all(0))
    same(h.std(0, ddof=1), X.std(0, ddof=1))
    same(h.cumsum(0), X.cumsum(0))
    same(h.clip(-0.5, 0.5), X.clip(-0.5, 0.5))
    same(h.round(2), X.round(2))
    same(h.dot(X[0]), X @ X[0])
    same(h.conj(), X.conj())
    same(h.copy(), X)
    cube = np.arange(24.0).reshape(2, 3, 4)
    on_mesh = client.put(cube, mesh=sc.Mesh(x=2))
    same(on_mesh.transpose(2, 0, 1), cube.transpose(2, 0, 1))
    same(on_mesh.transpose((1, 0, 2)), cube.transpose(1, 0, 2))
    same(on_mesh.swapaxes(0, 2), cube.swapaxes(0, 2))
    same(on_mesh.mT, cube.mT)
    same(np.moveaxis(on_mesh, [0, 1], [-1, 0]), np.moveaxis(cube, [0, 1], [-1, 0]))
    with pytest.raises(ValueError, match="at least two"):
        on_mesh.sum((0, 1)).mT  # noqa: B018


FUNCTIONS = {
    "sin": np.sin,
    "add": lambda x: np.add(x, 1),
    "array + h": lambda x: X + x,
    "array @ h": lambda x: X.T @ x,
    "mean": lambda x: np.mean(x, axis=0),
    "var": lambda x: np.var(x, 0, ddof=1),
    "sum, positional": lambda x: np.sum(x, 0, np.float32),
    "max": lambda x: np.max(x, 1, keepdims=True),
    "amin": lambda x: np.amin(x, initial=3.0, where=x < 9),
    "roll": lambda x: np.roll(x, 1, 0),
    "diff": lambda x: np.diff(x, axis=0, prepend=0.0),
    "gradient": lambda x: np.gradient(x, 2.0, axis=0),
    "clip": lambda x: np.clip(x, -1, 1),
    "clip by name": lambda x: np.clip(x, min=0),
    "where": lambda x: np.where(x > 0, x, 0),
    "cumsum": lambda x: np.cumsum(x, 1),
    "dot": lambda x: np.dot(x, X[0]),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, X, optimize=True),
    "transpose": np.transpose,
    "angle": lambda x: np.angle(x, deg=True),
    "round": lambda x: np.round(x, -1),
    "ptp": lambda x: np.ptp(x, axis=0),
    "count_nonzero": lambda x: np.count_nonzero(x > 0, axis=0),
    "isclose": lambda x: np.isclose(x, X + 1e-9),
    "add.reduce": np.add.reduce,
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=1),
    "add.accumulate": np.add.accumulate,
    "rad2deg": np.rad2deg,
    "copy": np.copy,
    "convolve": lambda x: np.convolve(np.sum(x, 1), np.ones(3), mode="same"),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_numpys_functions_run_on_the_mesh(h, function):
    same(function(h), function(X))


def test_numpys_functions_that_return_no_array(h):
    assert (np.shape(h), np.ndim(h), np.size(h), np.size(h, 1)) == ((13, 6), 2, 78, 6)
    assert np.result_type(h, np.float32, 3) == np.float64
    assert np.iscomplexobj(h) is False
    assert np.isrealobj(h) is True
    assert np.allclose(h, X)
    assert not np.allclose(X, h + 1)
    assert np.array_equal(h, X)
    assert not np.array_equal(h, X[1:])
    holes = np.where(X > 0, X, np.nan)
    assert np.array_equiv(h, X)
    assert np.array_equiv(h * 0, [0])
    assert not np.array_equiv(h, X[1:])
    assert not np.array_equiv(h, X[0])
    assert np.array_equiv(h[:0], X[:0])
    assert np.array_equal(h * (holes / X), holes, equal_nan=True)
    assert not np.array_equal(h * (holes / X), holes)


@pytest.mark.parametrize(
    "call",
    [
        np.histogram,
        lambda h, edges: np.linspace(edges, 9, 3),
        lambda h, edges: np.delete(h, edges.astype(int), 0),
        lambda h, edges: np.pad(h, np.astype(edges[:2], int)),
    ],
    ids=["edges of bins", "bounds of ranges", "indices that are left out", "widths"],
)
def test_arguments_that_are_copied_are_counted_or_refused(server, h, call):
    edges = np.arange(3.0)
    with sc.connect(server.address) as client:
        result = call(client.put(X), client.put(edges))
        assert client.statistics().implicit_gets == 1
        expected = call(X, edges)
        same(result[0] if isinstance(result, tuple) else result, expected[0] if isinstance(result, tuple) else expected)
    with pytest.raises(TypeError, match=r"implicit_get='error'"):
        call(h, h[0, :3])

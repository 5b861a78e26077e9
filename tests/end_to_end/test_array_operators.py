"""Operators, methods and NumPy's functions of arrays on the mesh, which equal NumPy's of arrays of this process."""

import operator

import ml_dtypes
import numpy as np
import pytest

import shardcall as sc

X = np.random.default_rng(18).normal(size=(13, 6))
INTEGERS = np.arange(-39, 39).reshape(13, 6)

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


def same(ours, expected):
    assert isinstance(ours, sc.RemoteArray)
    expected = np.asarray(expected)
    assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
    tolerance = 1e-12 if expected.dtype.itemsize > 4 else 1e-5
    np.testing.assert_allclose(ours.get(), expected, rtol=tolerance, atol=tolerance)


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


def test_python_numbers_take_the_arrays_type(client):
    for dtype in ("float32", "float16", "int8", "uint8", "complex64", ml_dtypes.bfloat16):
        x = np.arange(6).astype(dtype)
        h = client.put(x, mesh=sc.Mesh(x=2))
        assert (h + 1).dtype == (x + 1).dtype == x.dtype
        assert (h * np.float64(2)).dtype == (x * np.float64(2)).dtype
        assert (np.float64(2) * h).dtype == (np.float64(2) * x).dtype
    with pytest.raises(sc.OperandOverflowError):
        client.put(np.arange(3, dtype=np.int8)) + 300


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


def test_values_of_arrays_with_more_elements_are_not_fetched(h):
    with pytest.raises(ValueError, match="ambiguous; use any"):
        bool(h)
    for convert in (float, int, complex):
        with pytest.raises(TypeError, match=r"shape \(13, 6\) cannot be converted"):
            convert(h)
    with pytest.raises(ValueError, match="not one element; use get"):
        h.item()
    with pytest.raises(TypeError):
        operator.index(h)


def test_an_integer_of_no_axes_is_an_index(client):
    assert [10, 20, 30][client.put(np.int64(1))] == 20
    with pytest.raises(TypeError):
        operator.index(client.put(1.5))


def test_comparisons_with_no_array(h):
    same(h == None, np.zeros(X.shape, bool))  # noqa: E711
    same(h != None, np.ones(X.shape, bool))  # noqa: E711
    same(h == "a", np.zeros(X.shape, bool))
    assert float(X[0, 0]) in h
    assert 1e9 not in h
    with pytest.raises(TypeError, match="unhashable"):
        hash(h)
    with pytest.raises(TypeError, match="unsupported operand"):
        h + "a"
    with pytest.raises(TypeError, match="unsupported operand"):
        None + h


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


def test_results_go_to_arrays_of_this_process(server, h):
    x = X.copy()
    y = x
    with pytest.raises(TypeError, match="implicit_get='error'"):
        x += h
    with sc.connect(server.address) as copying:
        h = copying.put(X, mesh=sc.Mesh(x=8))
        x += h
        assert x is y
        np.testing.assert_array_equal(x, 2 * X)
        into = np.empty(6)
        assert np.sum(h, axis=0, out=into) is into
        np.testing.assert_allclose(into, X.sum(0))
        with pytest.raises(TypeError, match="Cannot cast"):
            np.add(h, 1, out=np.empty(X.shape, int))


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda h: np.add(h, 1, signature="ff->f"), "numpy.add with signature="),
        (lambda h: np.linalg.svd(h, hermitian=True), "numpy.linalg.svd with hermitian="),
        (np.isnat, "numpy.isnat"),
    ],
)
def test_functions_that_do_not_run_on_the_mesh_name_get(h, call, shown):
    with pytest.raises(TypeError, match=rf"{shown}.* does not run on the mesh.*array\.get\(\)"):
        call(h)


def test_a_function_that_does_not_run_names_one_that_does(h):
    with pytest.raises(TypeError, match=r"numpy\.isnat does not run on the mesh; isnan does"):
        np.isnat(h)


def test_ufuncs_compute_in_the_type_of_their_results(h, k):
    same(np.add(h, 1, dtype="f4"), np.add(X, 1, dtype="f4"))
    same(np.divide(k, [3] * 6, dtype="f4"), np.divide(INTEGERS, [3] * 6, dtype="f4"))
    same(np.equal(k, 3, dtype=bool), INTEGERS == 3)
    same(np.add(h, 1, dtype="i4", casting="unsafe"), X.astype("i4") + 1)
    with pytest.raises(TypeError, match="same_kind"):
        np.add(h, 1, dtype="i4")
    with pytest.raises(OverflowError):
        np.add(k, 300, dtype="i1")


def test_the_namespace_has_numpys_and_the_standards_names(client, h):
    xp = h.__array_namespace__(api_version="2024.12")
    assert type(xp) is type(client.xp)
    same(xp.acos(h / 9), np.arccos(X / 9))
    same(xp.atan2(h, 2.0), np.arctan2(X, 2.0))
    same(xp.permute_dims(h, (1, 0)), X.T)
    same(xp.pow(h, 2), X**2)
    same(xp.sum(xp.sin(X)), np.sin(X).sum())
    assert xp.pi == np.pi
    with pytest.raises(AttributeError, match="did you mean"):
        client.xp.sinn(h)


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


def test_copies_by_numpy_are_counted_or_refused(server, h):
    with pytest.raises(TypeError, match=r"implicit_get='error'.*array\.get\(\)"):
        np.asarray(h)
    with sc.connect(server.address) as client:
        array = client.put(X)
        assert client.statistics().implicit_gets == 0
        np.asarray(array)
        array.get()
        assert client.statistics().implicit_gets == 1
        assert client.statistics().implicit_get_bytes == X.nbytes
    with pytest.raises(sc.InvalidParameterError, match="implicit_get is 'no'"):
        sc.connect(server.address, implicit_get="no")


def test_a_result_has_the_operators_of_its_array(client):
    for keep in (False, True):
        result = client.add(X, 1.0, keep=keep)
        assert (result.shape, result.dtype, result.ndim, result.size) == (X.shape, X.dtype, 2, X.size)
        expected = X + 1
        for ours, theirs in ((result + 1, expected + 1), (2 * result, 2 * expected), (result @ X.T, expected @ X.T)):
            np.testing.assert_allclose(ours.get() if keep else ours, theirs)
        total = result.sum()
        assert float(total) == pytest.approx(expected.sum())
        assert float(client.sum(X, keep=keep)) == pytest.approx(X.sum())
    assert client.add(X, 1.0)[2, 3] == X[2, 3] + 1


def test_the_heat_equation_of_a_numpy_program(client):
    def steps(u):
        for _ in range(20):
            u = u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)
        return u

    u0 = np.random.default_rng(0).normal(size=(61, 30))
    u = steps(client.put(u0, mesh=sc.Mesh(x=8), spec=sc.P("x", None)))
    same(u, steps(u0))
    assert float(np.abs(u).max()) == pytest.approx(np.abs(steps(u0)).max())
    assert u.spec == sc.P("x", None)

"""Operators, methods and NumPy's functions of arrays on the mesh, which equal NumPy's of arrays of this process."""

import operator

import ml_dtypes
import numpy as np
import pytest

import shardcall as sc

X = np.random.default_rng(18).normal(size=(13, 6))
INTEGERS = np.arange(-39, 39).reshape(13, 6)


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


def test_python_numbers_take_the_arrays_type(client):
    for dtype in ("float32", "float16", "int8", "uint8", "complex64", ml_dtypes.bfloat16):
        x = np.arange(6).astype(dtype)
        h = client.put(x, mesh=sc.Mesh(x=2))
        assert (h + 1).dtype == (x + 1).dtype == x.dtype
        assert (h * np.float64(2)).dtype == (x * np.float64(2)).dtype
        assert (np.float64(2) * h).dtype == (np.float64(2) * x).dtype
    with pytest.raises(sc.OperandOverflowError):
        client.put(np.arange(3, dtype=np.int8)) + 300


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

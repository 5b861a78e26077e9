"""Results of functions of arrays on the mesh that say more than NumPy's values: types, layouts, copies and refusals."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from end_to_end.numpy_calls import ARRAYS, MESH, Side, V, X, calls_of, check_call, compiled, same

import shardcall as sc

BINARY, SQUARES = ARRAYS["BINARY"], ARRAYS["SQUARES"]
PLACED = {"mesh": MESH, "spec": sc.P("a", "b")}

REQUESTED_TYPES = """
    [xp.asarray(binary, dtype=np.float64), xp.array(binary, dtype=float), xp.full(8, binary, dtype=np.float64)]
    [xp.full_like(binary, binary, dtype=np.float64), np.multiply(binary, binary, dtype=float)]
    [np.sin(binary, dtype=np.float64), np.add(binary, 1, dtype='f4'), np.nanvar(i, axis=0, ddof=1)]
    np.add(binary, binary.astype('f8'), casting='no')
    [np.pad(x[0, 0], 1, mode='{constant|edge|reflect|symmetric|wrap}')]
    np.pad(x[0, 0], [])
    [np.convolve(x[0, 0], x[0, 0]), np.meshgrid(v, W, indexing='ij'), np.meshgrid(v, W, sparse=True)]
    np.tensordot(x[0, 0], x[0, 0])
    [np.fft.fftshift(cube), np.fft.fftshift(cube, (0, 2)), np.fft.ifftshift(cube, (0, 2))]
    ndimage.correlate(x, put(X[:3, :2]))
    [special.erf(x), np.linalg.slogdet(squares)]
    """


@pytest.mark.parametrize("call", calls_of(REQUESTED_TYPES))
def test_types_and_values_are_numpys(strict_client, call):
    check_call(strict_client, call)


def test_a_float64_is_no_end_that_was_left_out(client):
    with pytest.raises(sc.OperandTypeError):  # a float64 equals None in NumPy
        client.call("arange", np.int32(0), np.float64(1), size=3)


def test_decompositions_have_numpys_names(strict_client):
    h = strict_client.put(SQUARES, mesh=sc.Mesh(x=4))
    q, r = np.linalg.qr(h)
    np.testing.assert_allclose((q @ r).get(), SQUARES, atol=1e-12)
    svd = np.linalg.svd(h, full_matrices=False)
    np.testing.assert_allclose((svd.U * svd.S[:, None] @ svd.Vh).get(), SQUARES, atol=1e-12)
    symmetric = SQUARES + np.swapaxes(SQUARES, 1, 2)
    eigh = np.linalg.eigh(strict_client.put(symmetric, mesh=sc.Mesh(x=4)))
    np.testing.assert_allclose(eigh.eigenvalues.get(), np.linalg.eigvalsh(symmetric), atol=1e-12)
    assert eigh.eigenvectors.spec == sc.P("x", None, None)
    assert np.linalg.slogdet(h)._fields == np.linalg.slogdet(SQUARES)._fields
    assert strict_client.xp.unique_inverse(h)._fields == ("values", "inverse_indices")
    assert np.linalg.vector_norm(strict_client.put(np.zeros(0)), ord=np.inf) == 0
    assert isinstance(np.meshgrid(h[0, 0], h[0, 1]), tuple)


@pytest.mark.parametrize("x", [[3, 1, 2, 3, 1, 2, 0], [0.0, np.nan, -0.0, 1, -np.inf, np.nan, 1], [1j, 2, np.nan, 1]])
def test_descending_sorts_keep_the_sequence_of_equal_elements_and_nan_is_last(strict_client, x):
    x = np.array(x)
    h = strict_client.put(x, mesh=sc.Mesh(x=2))
    expected, order = -np.sort(-x, stable=True), np.argsort(-x, stable=True)
    same(strict_client.xp.sort(h, descending=True).get(), expected)
    same(strict_client.xp.argsort(h, descending=True).get(), order)
    if np.lib.NumpyVersion(np.__version__) < "2.5.0":
        with pytest.raises(TypeError, match="descending"):
            h.sort(descending=True)
        return
    same(np.sort(h, descending=True).get(), np.sort(x, descending=True))
    same(np.argsort(h, stable=True, descending=True).get(), order)
    same(h.argsort(descending=True).get(), order)
    with pytest.raises(ValueError, match="can't be provided at the same time"):
        h.sort(kind="stable", descending=True)
    h.sort(descending=True)
    same(h.get(), expected)


FLATTENED = """
    np.cumsum(x)
    np.cumprod(x / 3)
    np.repeat(x, 2)
    np.roll(x, 33)
    np.concatenate([x, X[:5, 1]], axis=None)
    """


def test_flattened_arrays_stay_sharded(strict_client):
    for call in calls_of(FLATTENED):
        check_call(strict_client, call)
        assert any(Side(compiled(call), strict_client).result().spec)


def test_arrays_like_another_are_where_it_is(strict_client):
    h = strict_client.put(np.zeros((5, 4), np.float32), mesh=sc.Mesh(x=4), spec=sc.P(None, "x"))
    for ours, expected in (
        (np.zeros_like(h), np.zeros((5, 4), np.float32)),
        (np.ones_like(h, dtype=int), np.ones((5, 4), int)),
        (np.full_like(h, 3), np.full((5, 4), 3, np.float32)),
        (strict_client.xp.empty_like(h, ml_dtypes.bfloat16), np.zeros((5, 4), ml_dtypes.bfloat16)),
    ):
        same(ours.get(), expected)
        assert ours.committed
        assert (ours.mesh.size, ours.spec) == (4, sc.P(None, "x"))
    same(strict_client.xp.zeros_like(h, shape=(2,)).get(), np.zeros(2, np.float32))
    same(strict_client.xp.zeros_like(np.arange(3)).get(), np.zeros(3, int))


def test_arrays_on_the_mesh_are_converted_to_a_mesh_and_a_spec_there(strict_client):
    xp, h = strict_client.xp, strict_client.put(np.arange(6.0), mesh=sc.Mesh(x=2))
    assert xp.asarray(h, spec=sc.P(None)).spec == sc.P(None)
    assert xp.asarray(h, mesh=sc.Mesh(x=4)).mesh.size == 4
    same(xp.full(3, xp.asarray(2.5)).get(), np.full(3, 2.5))
    same(xp.arange(xp.asarray(4)).get(), np.arange(4))


def test_a_bucketed_array_keeps_its_values(client):
    h = client.put(V, mesh=MESH)
    bucketed = client.bucket(h)
    h[...] = 5
    np.testing.assert_array_equal(bucketed.get(), V)


def test_a_copy_in_a_traced_function_is_one(client):
    def changed(h: Any) -> Any:
        array = client.xp.array(h)
        array[0] = 7
        return h, array

    h, array = client.jit(changed)(client.put(V, mesh=MESH))
    same(h.get(), V)
    same(array.get(), np.array([7.0, *V[1:]]))


def test_python_numbers_of_traced_functions(client):
    def functions(h: Any, n: Any) -> Any:
        return (
            np.dot(h, n),
            np.select([h > 3], [h], n),
            np.clip(h, n, 5),
            np.isclose(h, n),
            np.heaviside(h, n),
            np.heaviside(n, h),
        )

    traced = client.jit(functions)
    for number in (2, 2.5):
        results = traced(client.put(BINARY, mesh=MESH), number)
        for ours, expected in zip(results, functions(BINARY, number), strict=True):
            same(ours.get(), expected)


def test_special_functions_are_of_real_numbers_and_named_in_refusals(strict_client):
    scipy = pytest.importorskip("scipy.special")
    h = strict_client.put(X * 1j, **PLACED)
    for name in ("expit", "erf", "gammaln", "logsumexp"):
        with pytest.raises(TypeError):
            getattr(strict_client.xp.special, name)(h).get()
    same(scipy.erf(strict_client.put(X, **PLACED)).get(), scipy.erf(X))
    with pytest.raises(TypeError, match=r"scipy\.special\.j0 does not run on the mesh"):
        scipy.j0(strict_client.put(X))


class Answering:
    """An object with ufuncs of its own."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=()):
        return ufunc.__name__, [target is self for target in out]


def test_objects_with_ufuncs_answer_beside_arrays_and_as_targets(strict_client):
    h, other = strict_client.put(X), Answering()
    assert np.add(h, other) == ("add", [])
    assert np.add(h, "a", out=other) == np.add(h, 1, out=other) == ("add", [True])
    assert np.sin(h, other) == ("sin", [True])
    assert np.modf(h, None, other) == ("modf", [False, True])
    assert np.add.reduce(h, out=other) == ("add", [True])


def test_indices_on_the_mesh_of_ufuncs_are_copied_where_a_method_needs_them(strict_client):
    check_call(strict_client, "np.add.at(x, at, x[0])")
    for call in ("np.negative.at(x, at)", "np.add.reduceat(x, at)"):
        assert "implicit_get='error'" in str(Side(compiled(call), strict_client).outcome())

"""Functions that change shapes, called through a client, against NumPy."""

import numpy as np
import pytest

import shardcall as sc
from shardcall import P
from shardcall_core.functions.indexing import basic_index

MESH = sc.Mesh(x=8)
X = np.arange(54.0).reshape(9, 6)
CALLS = [
    ("reshape", ((3, -1),), {}),
    ("expand_dims", ((0, -1),), {}),
    ("squeeze", (), {}),
    ("broadcast_to", ((2, 9, 6),), {}),
    ("flip", (), {"axis": 1}),
    ("astype", (np.int16,), {}),
    ("tile", ((2, 1),), {}),
    ("repeat", (3,), {"axis": 0}),
    ("tril", (-1,), {}),
    ("triu", (), {"k": 2}),
    ("diagonal", (1,), {}),
    ("trace", (), {"dtype": np.float32}),
    ("pad", (((1, 2), (0, 3)),), {"constant_values": 7}),
    ("pad", (2, "reflect"), {}),
    ("sort", (), {"axis": None}),
    ("argsort", (0,), {}),
    ("take", (np.array([[3, -1]]), 0), {}),
    ("take_along_axis", (np.array([[3, -1]] * 9), 1), {}),
]


@pytest.mark.parametrize(("name", "arguments", "keywords"), CALLS)
def test_methods_are_numpys(client, name, arguments, keywords):
    expected = np.asarray(getattr(np, name)(X, *arguments, **keywords))
    result = getattr(client, name)(X, *arguments, mesh=MESH, spec=P("x", None), **keywords)
    np.testing.assert_array_equal(result.array, expected, strict=True)


def test_an_index_that_there_is_not_is_refused(client):
    with pytest.raises(sc.InvalidOperandError, match="give indices from -9 to 8"):
        client.take(X, [9], axis=0, mesh=MESH)


def test_arrays_are_joined(client):
    np.testing.assert_array_equal(client.concatenate([X, X[:2]], mesh=MESH).array, np.concatenate([X, X[:2]]))
    np.testing.assert_array_equal(client.stack([X, X], axis=-1, mesh=MESH).array, np.stack([X, X], axis=-1))
    with pytest.raises(sc.InvalidOperandError, match=r"arrays\[1\] is of shape \(6, 9\)"):
        client.concatenate([X, X.T], mesh=MESH)


def test_slices_stay_on_the_mesh_and_are_sharded_alike(client):
    x = client.put(X, mesh=MESH, spec=P("x", None))
    for key in (np.s_[1:-1], np.s_[3, None], np.s_[::-2, 1:3]):
        starts, sizes, steps, dropped, inserted = basic_index(x.shape, key)
        how = {"sizes": sizes, "steps": steps, "dropped": dropped, "inserted": inserted, "keep": True}
        sliced = client.call("getitem", x, np.array(starts), **how).array
        np.testing.assert_array_equal(sliced.get(), X[key], strict=True)


@pytest.mark.parametrize(
    ("window", "axis"), [(3, 0), ((2, 3), None), ((2, 2), (1, 1)), (70, 0), (1, -1), ((), ())], ids=str
)
def test_windows_are_numpys(client, window, axis):
    windows = np.lib.stride_tricks.sliding_window_view
    values = np.arange(90.0 * 4).reshape(90, 4)
    result = windows(client.put(values, mesh=MESH, spec=P("x", None)), window, axis=axis)
    np.testing.assert_array_equal(result.get(), windows(values, window, axis=axis), strict=True)


@pytest.mark.parametrize(
    ("window", "axis", "options", "error"),
    [
        (10, 0, {}, ValueError),
        (0, 0, {}, ValueError),
        (3, None, {}, ValueError),
        (3, 2, {}, np.exceptions.AxisError),
        (3, 0, {"writeable": True}, TypeError),
    ],
)
def test_windows_that_are_not_there_are_refused(client, window, axis, options, error):
    with pytest.raises(error):
        client.xp.lib.stride_tricks.sliding_window_view(client.put(X), window, axis, **options)

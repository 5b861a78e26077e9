"""Functions that change shapes, called through a client, against NumPy."""

import numpy as np
import pytest

import shardcall as sc
from shardcall import P
from shardcall_core.functions.indexing import basic_index

MESH = sc.Mesh(x=8)
X = np.arange(54.0).reshape(9, 6)


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

"""Comparison of results on the mesh with those of NumPy or SciPy."""

import warnings

import numpy as np

import shardcall as sc

MESH = sc.Mesh(x=8)


def leaves(value):
    """The arrays and numbers of a result."""
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, tuple | list) else [value]


def same(made, wanted, tolerance=None):
    """Compares types, shapes and values; floats within a share of the largest value."""
    made, wanted = leaves(made), leaves(wanted)
    assert len(made) == len(wanted)
    for result, expected in zip(made, wanted, strict=True):
        ours = np.asarray(result.get() if isinstance(result, sc.RemoteArray) else result)
        theirs = np.asarray(expected)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        share = (1e-5 if theirs.dtype in (np.float32, np.complex64) else 1e-11) if tolerance is None else tolerance
        finite = np.abs(theirs[np.isfinite(theirs)]) if theirs.dtype.kind in "fc" else np.zeros(0)
        np.testing.assert_allclose(ours, theirs, rtol=share, atol=share * np.max(finite, initial=1e-30))


def check(client, function, x):
    """Compares a function of an array of this process and of one on the mesh."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wanted = function(x)
        same(function(client.put(x, mesh=MESH)), wanted)

"""Comparison of results on the mesh with those of NumPy or SciPy."""

import warnings

import numpy as np

import shardcall as sc

MESH = sc.Mesh(x=8)


def leaves(value):
    """The arrays and numbers of a result."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, tuple | list) else [value]


def same(results, expected, tolerance=None):
    """Compares types, shapes and values; floats within a share of the largest value."""
    ours, theirs = leaves(results), leaves(expected)
    assert len(ours) == len(theirs)
    for result, number in zip(ours, theirs, strict=True):
        close(np.asarray(result.get() if isinstance(result, sc.RemoteArray) else result), np.asarray(number), tolerance)


def close(result, expected, tolerance):
    """Compares two arrays."""
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    share = (1e-5 if expected.dtype in (np.float32, np.complex64) else 1e-11) if tolerance is None else tolerance
    finite = np.abs(expected[np.isfinite(expected)]) if expected.dtype.kind in "fc" else np.zeros(0)
    np.testing.assert_allclose(result, expected, rtol=share, atol=share * np.max(finite, initial=1e-30))


def check(client, function, x):
    """Compares a function of an array of this process and of one on the mesh."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = function(x)
        same(function(client.put(x, mesh=MESH)), expected)

"""Statistics, joins and Fourier transforms of arrays on the mesh by NumPy's functions, which equal NumPy's results."""

import warnings

import numpy as np
import pytest

import shardcall as sc

RANDOM = np.random.default_rng(18)
X = RANDOM.normal(size=(13, 20))
HOLES = X.copy()
HOLES[2, 3:9], HOLES[:, 5], HOLES[0, 0] = np.nan, np.nan, np.inf
ARRAYS = {
    "float64": HOLES,
    "float32": HOLES.astype(np.float32),
    "float16": HOLES.astype(np.float16),
    "int64": RANDOM.integers(-9, 30, (13, 20)),
    "complex128": X + 1j * X[::-1],
}


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
    result, expected = np.asarray(ours.get() if isinstance(ours, sc.RemoteArray) else ours), np.asarray(expected)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    small = expected.dtype.itemsize <= 4 or expected.dtype == np.complex64
    tolerance = 4e-3 if expected.dtype == np.float16 else 2e-5 if small else 1e-11
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def outcome(function, x):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(x)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            return error


def check(client, x, spec, function):
    expected = outcome(function, x)
    result = outcome(function, client.put(x, mesh=sc.Mesh(x=8), spec=spec))
    if isinstance(expected, Exception):
        assert isinstance(result, TypeError | ValueError | ZeroDivisionError)
    else:
        same(result, expected)


def test_variances_of_integers_without_nan_are_numpys(client):
    check(client, ARRAYS["int64"], sc.P("x"), lambda x: np.nanvar(x, axis=0, ddof=1))


def test_wrong_arguments_are_refused(client):
    h = client.put(X, mesh=sc.Mesh(x=8))
    for call, error, says in (
        (lambda: np.quantile(h, 2), ValueError, "from 0 to 1"),
        (lambda: np.quantile(h, h), TypeError, "pass q.get"),
        (lambda: np.quantile(h, 0.5, method="best"), ValueError, "method='best' is not one of"),
        (lambda: np.median(h, axis=3), np.exceptions.AxisError, "name axes of x"),
        (lambda: np.average(h, weights=[1, 2]), TypeError, "name their axis"),
        (lambda: np.average(h, 0, weights=np.zeros(13)), ZeroDivisionError, "sum of zero"),
        (lambda: np.nanargmax(h * np.nan, 1), ValueError, "NaN alone"),
        (lambda: np.histogram(h, "auto"), TypeError, "estimators"),
        (lambda: np.digitize(h, [1, 3, 2]), ValueError, "sort it"),
        (lambda: np.split(h, 3), ValueError, "use array_split"),
        (lambda: np.fft.fft(h, axis=2), sc.AxisError, "axis=2"),
        (lambda: np.fft.fftn(h, (3,), axes=(0, 1)), ValueError, "one size for each axis"),
        (lambda: np.interp(h, [0, 1], [0, 1], period=0), ValueError, "period=0"),
        (lambda: np.interp(h, [0], [1, 2], period=3), ValueError, "a value for each point"),
        (lambda: np.tensordot(h, h, axes=([0, 0], [0, 0])), ValueError, "each axis of an array once"),
    ):
        with pytest.raises(error, match=says):
            call()

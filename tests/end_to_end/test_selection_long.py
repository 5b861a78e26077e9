"""The tests of `test_selection.py` that take long."""

import warnings

import numpy as np
import pytest
from end_to_end.test_selection import RANDOM, X

import shardcall as sc
from shardcall.namespace import Namespace

pytestmark = pytest.mark.long

I = RANDOM.integers(-5, 5, (13, 6))  # noqa: E741


MANY = RANDOM.normal(size=4096)


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


def put_along(x, indices, values, axis):
    x = x.copy()
    np.put_along_axis(x, indices, values, axis)
    return x


def in_order(x):
    x = x.copy()
    x.sort(0)
    return x


SMALL, ENDLESS = np.arange(9, dtype=np.uint8), np.array([-np.inf, 1, 2, np.inf])


SHORT = {
    "partition of no rows": (lambda x: np.partition(x, 0, axis=0), np.zeros((0, 3))),
    "quantile of infinities": (lambda x: np.quantile(x, [0, 1]), ENDLESS),
    "quantile of integers": (lambda x: np.quantile(x, 1), I),
    "nanquantile of integers": (lambda x: np.nanquantile(x, 0), I),
    "quantile of integers, weibull": (lambda x: np.nanquantile(x, 1, method="weibull"), I),
    "quantiles of integers, weibull": (lambda x: np.quantile(x, [1, 0], method="weibull"), I.astype("u4")),
    "nanquantiles at integers, weibull": (lambda x: np.nanquantile(x, [1, 0], method="weibull"), X[3].astype("f4")),
    "nanpercentile at a short number": (lambda x: np.nanpercentile(x, np.float32(1)), np.arange(6.0)),
    "select with a wide default": (lambda x: np.select([x > 4], [x], 300), SMALL),
    "where with a negative number": (lambda x: np.where(x > 4, x, -1), SMALL),
    "isin": (lambda x: np.isin(x, [1, 2, -3]), I),
    "select": (lambda x: np.select([x > 2, x < -2], [x, 1], 0.5), I),
    "delete": (lambda x: np.delete(x, [1, 2, -1], 0), X),
    "insert": (lambda x: np.insert(x, [3, 3, 5], np.arange(6), 0), X),
    "trim_zeros": (np.trim_zeros, np.pad(I, ((2, 3), (0, 1)))),
    "resize": (lambda x: np.resize(x, (7, 23)), I),
    "diag": (lambda x: np.diag(x, 2), I[:, 0]),
    "nanquantile": (lambda x: np.nanquantile(x, [0, 0.1, 0.5, 0.77, 1], axis=0), X),
    "unique along an axis": (lambda x: np.unique(x, True, True, True, axis=0), I[:, :2] % 2),
    "put_along_axis": (lambda x: put_along(x, np.array([[1], [1], [-1]]), [[1], [2], [3]], 0), X),
    "sort, the method": (in_order, I),
    "gcd": (lambda x: np.gcd(x, 6), I),
    "correlate of bool": (lambda x: np.correlate(x, x), I[:, 0] > 0),
}


METHODS = ("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "midpoint", "nearest", "hazen", "weibull")


KEYS = (3, [-1, 0], slice(2, 9, 3), slice(1, 4), np.arange(13) % 2 == 0, [])


LONG = {
    "histogram2d": (lambda x: np.histogram2d(x, x[::-1], bins=[3, [-1, 0, 2]], range=[[-1, 1], None]), MANY),
    "histogram2d of nothing": (lambda x: np.histogram2d(x, x), X[:0, 0] * 1j),
    "histogram2d of two types": (lambda x: np.histogram2d(x * 1j, (x * 9).astype(np.int8), 4), X[:, 0]),
    "quantile, closest_observation": (lambda x: np.quantile(x, [0, 0.5, 1], method="closest_observation"), MANY),
    "isin, inverted": (lambda x: np.isin(x, X.ravel()[:9], invert=True), X),
    "isin of nothing": (lambda x: np.isin(x, []), X),
    "append a number": (lambda x: np.append(x, -1), X.astype(np.float32)),
    "append": (lambda x: np.append(x, [1, 2]), I),
    "append along an axis": (lambda x: np.append(x, x, axis=1), X),
    **{f"delete {key}": (lambda x, key=key: np.delete(x, key, 0), X) for key in KEYS},
    **{f"insert {key}": (lambda x, key=key: np.insert(x, key, 7.5, 0), X) for key in KEYS},
    "insert a column": (lambda x: np.insert(x, 1, np.arange(13), 1), X),
    "insert columns": (lambda x: np.insert(x, [1], np.arange(26).reshape(13, 2), 1), X),
    "insert floats": (lambda x: np.insert(x, [1, 4], 2.7, 1), I),
    **{f"diag {k}": (lambda x, k=k: np.diag(x, k), X[:, 0]) for k in (0, -3)},
    "diagonal by diag": (lambda x: np.diag(x, -1), X),
    "diagflat": (lambda x: np.diagflat(x, 1), X[:2]),
    "trim_zeros in front": (lambda x: np.trim_zeros(x, "F"), np.pad(X[:, 0], 4)),
    "trim_zeros behind": (lambda x: np.trim_zeros(x, "b"), np.arange(4096) % 97 * (np.arange(4096) < 4000)),
    "trim_zeros of an axis": (lambda x: np.trim_zeros(x, "bf", 1), np.pad(I > 0, 1)),
    "trim_zeros of axes": (lambda x: np.trim_zeros(x, axis=(-1, 0)), np.pad(I[:, :, None] * 1j, 1)),
    "trim_zeros of no axis": (lambda x: np.trim_zeros(x, axis=()), I),
    "trim_zeros of zeros": (lambda x: np.trim_zeros(x, "f", 0), np.zeros((13, 6))),
    "trim_zeros of nothing": (np.trim_zeros, np.zeros((13, 0))),
    "trim_zeros of NaN": (np.trim_zeros, np.array([-0.0, np.nan, 1, 0])),
    "trim_zeros of a number": (np.trim_zeros, np.array(0)),
    "resize, cut off": (lambda x: np.resize(x, 5), X),
    "resize, as it is": (lambda x: np.resize(x, (6, 13)), X),
    "resize of nothing": (lambda x: np.resize(x, (2, 3)), X[:0]),
    "resize to nothing": (lambda x: np.resize(x, (0, 3)), X),
    "resize of a number": (lambda x: np.resize(x, [3]), np.array(2.5)),
    "unravel_index": (lambda x: np.unravel_index(x, (3, 4, 5)), np.arange(60)),
    "nancumprod": (lambda x: np.nancumprod(x, 0), X),
    **{f"quantile, {m}": (lambda x, m=m: np.quantile(x, 0.5, method=m), MANY.astype(np.float32)) for m in METHODS},
    **{f"nanpercentile, {m}": (lambda x, m=m: np.nanpercentile(x, [9, 77], 1, method=m), X) for m in METHODS},
    "nanquantile of NaN": (lambda x: np.nanquantile(x, 0.3, axis=1), np.full((3, 5), np.nan)),
    "nanquantile of nothing": (lambda x: np.nanquantile(x, 0.3, axis=0), X[:0]),
    "partition": (lambda x: np.partition(x, 3, axis=0)[3], X),
    "argpartition": (lambda x: np.take_along_axis(x, np.argpartition(x, 3, 0), 0)[3], X),
    "lexsort": (lambda x: np.lexsort((x[:, 0], x[:, 1])), I),
    "unique along the last axis": (lambda x: np.unique(x, True, axis=-1), I[:2] % 2),
    "unique of rows with NaN": (lambda x: np.unique(x, axis=0), X[[2, 2, 3, 3]]),
    "unique of NaN": (lambda x: np.unique(x, axis=0), np.array([1, np.nan, np.nan])),
    "unique of no columns": (lambda x: np.unique(x, True, axis=0), X[:, :0]),
    "unique of no rows": (lambda x: np.unique(x, True, axis=0), X[:0]),
    "put_along_axis, flat": (lambda x: put_along(x, np.array([3, 70]), [1, 2], None), X),
    "put_along_axis, of one column": (
        lambda x: put_along(x, np.arange(10).reshape(1, 2, 5) % 6, 20, 1),
        X[..., np.newaxis],
    ),
    "put_along_axis, many": (lambda x: put_along(x, I % 13, X * 2, 0), X),
    "lcm": (lambda x: np.lcm(x, 12), I.astype(np.int8)),
}


@pytest.mark.parametrize(
    ("function", "x"),
    [*SHORT.values(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*SHORT, *LONG],
)
def test_functions_are_numpys(client, function, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = function(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = function(client.put(x, mesh=sc.Mesh(x=8)))
    results = results if isinstance(results, tuple) else (results,)
    for ours, numpys in zip(results, expected, strict=True):
        assert ours.dtype == numpys.dtype
        np.testing.assert_allclose(ours.get() if isinstance(ours, sc.RemoteArray) else ours, numpys, rtol=1e-6)


def test_masks_with_counts_that_are_close_share_programs(client, monkeypatch):
    lengths, call = [], Namespace.call

    def noted(self, name, *operands, **arguments):
        lengths.append(arguments.get("size"))
        return call(self, name, *operands, **arguments)

    monkeypatch.setattr(Namespace, "call", noted)
    h = client.put(np.arange(4096), mesh=sc.Mesh(x=8))
    for count in (1153, 1280, 0):
        np.testing.assert_array_equal(h[h < count].get(), np.arange(count))
    assert [length for length in lengths if length is not None] == [1280, 1280, 0]


def test_functions_of_subnamespaces_take_options(client):
    h = client.put(np.nan_to_num(X), mesh=sc.Mesh(x=2))
    spectrum = client.xp.fft.fft2(h, out_spec=sc.P(None, "x"))
    assert spectrum.spec == sc.P(None, "x")
    np.testing.assert_allclose(spectrum.get(), np.fft.fft2(np.nan_to_num(X)), atol=1e-12)
    assert client.xp.linalg.qr(X[3:9], mesh=sc.Mesh(x=2)).Q.mesh.axes == (("x", 2),)
    assert client.xp.searchsorted(np.arange(9.0), h, out_spec=sc.P()).spec == sc.P(None, None)

"""The tests of `test_statistics.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_statistics import ARRAYS, HOLES, RANDOM, X, check, same

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


REDUCTIONS = ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "median", "nanmedian")


METHODS = ("lower", "higher", "nearest", "midpoint", "interpolated_inverted_cdf", "hazen", "weibull")


SHORT = {
    "nansum": lambda x: np.nansum(x, axis=0),
    "nanvar": lambda x: np.nanvar(x, axis=0),
    "nanargmin": lambda x: np.nanargmin(x, axis=1),
    "median": lambda x: np.median(x, axis=0),
    "quantile": lambda x: np.quantile(x, [0, 0.3, 1], axis=1),
    "fft2": np.fft.fft2,
}


LONG = {
    "nanmax": lambda x: np.nanmax(x, axis=1),
    "nanmedian": lambda x: np.nanmedian(x, axis=1),
    "cov": lambda x: np.cov(x[:4]),
    "histogram": lambda x: np.histogram(x, 7, (-2, 2)),
    "vstack": lambda x: np.vstack([x, X]),
    **{f"{n} {a}": lambda x, n=n, a=a: getattr(np, n)(x, axis=a) for n in REDUCTIONS for a in (None, 0, 1, (0, 1))},
    **{f"{n}, kept": lambda x, n=n: getattr(np, n)(x, axis=1, keepdims=True) for n in REDUCTIONS},
    **{f"quantile {m}": lambda x, m=m: np.quantile(x, [0, 0.1, 0.5, 0.77, 1], axis=0, method=m) for m in METHODS},
    "quantile unbiased": lambda x: np.quantile(x, 0.3, method="median_unbiased"),
    "quantile normal": lambda x: np.quantile(x, 0.3, method="normal_unbiased"),
    "percentile": lambda x: np.percentile(x, [30, 60], axis=(0, 1), keepdims=True),
    "nanargmax": np.nanargmax,
    "nancumsum": lambda x: np.nancumsum(x, 0),
    "average": lambda x: np.average(x, axis=0, weights=np.arange(1, 14)),
    "average with the weights": lambda x: np.average(x, axis=1, weights=abs(X), returned=True),
    "average of equal weights": lambda x: np.average(x, returned=True),
    "cov of columns": lambda x: np.cov(x, rowvar=False, ddof=0),
    "cov with weights": lambda x: np.cov(x, fweights=np.arange(1, 21), aweights=np.arange(1, 21) / 3),
    "cov of two": lambda x: np.cov(x, X),
    "cov of one": lambda x: np.cov(x[0]),
    "corrcoef": np.corrcoef,
    "trapezoid": lambda x: np.trapezoid(x, axis=0),
    "trapezoid of coordinates": lambda x: np.trapezoid(x, np.arange(20.0) ** 2),
    "ediff1d": lambda x: np.ediff1d(x, to_end=[1, 2], to_begin=3),
    "unwrap": lambda x: np.unwrap(x * 5, axis=0),
    "nan_to_num": np.nan_to_num,
    "nan_to_num with numbers": lambda x: np.nan_to_num(x, nan=3, posinf=7),
    "sinc": np.sinc,
    "heaviside": lambda x: np.heaviside(x, 0.5),
    "divmod": lambda x: np.divmod(x, 3),
    "modf": np.modf,
    "fix": np.fix,
    "isneginf": np.isneginf,
    "isposinf": np.isposinf,
    "cumulative_sum": lambda x: np.cumulative_sum(x, axis=0, include_initial=True),
    "cumulative_prod": lambda x: np.cumulative_prod(x, axis=1, include_initial=True),
    "cumprod": lambda x: np.cumprod(x / 2),
    **{n: lambda x, n=n: getattr(np, n)([x, X]) for n in ("hstack", "dstack", "column_stack")},
    **{f"{n} of rows": lambda x, n=n: getattr(np, n)([x[0], X[0]]) for n in ("hstack", "dstack", "column_stack")},
    "array_split": lambda x: np.array_split(x, 2),
    "irfftn": np.fft.irfftn,
    "split": lambda x: np.split(x, 4, axis=1),
    "hsplit": lambda x: np.hsplit(x, [3, 7]),
    "vsplit": lambda x: np.vsplit(x, [3, 7]),
    "unstack": lambda x: np.unstack(x, axis=0)[:2],
    "fliplr": np.fliplr,
    "flipud": np.flipud,
    **{f"rot90 {k}": lambda x, k=k: np.rot90(x, k) for k in range(4)},
    "atleast_3d": lambda x: np.atleast_3d(x, x[0]),
    "atleast_1d": lambda x: np.atleast_1d(x[0, 0]),
    "searchsorted": lambda x: np.searchsorted(X[0], x, side="right", sorter=np.argsort(X[0])),
    "digitize": lambda x: np.digitize(x, [-1, 0, 1.5, 9]),
    "digitize, descending": lambda x: np.digitize(x, [9, 2, 0, -1.0], right=True),
    "histogram of edges": lambda x: np.histogram(x, [-3, -1, 0, 0.5, 0.5, 2], density=True),
    "histogram of weights": lambda x: np.histogram(x, 5, (-2, 2), weights=X.astype(np.float32)),
    "interp": lambda x: np.interp(x, [-1, 0, 0.5, 2], [3, 5, -1, 9.0], left=-7),
    "interp of a period": lambda x: np.interp(x, [-1, 0, 0.5, 2], [3, 5, -1, 9.0], period=3.3),
    **{n: lambda x, n=n: getattr(np.fft, n)(x) for n in ("ifftn", "rfftn", "ifft2", "rfft2", "irfft2")},
    "hfft": lambda x: np.fft.hfft(x, n=7),
    "ihfft": lambda x: np.fft.ihfft(x, n=30, norm="forward"),
    "fftn": lambda x: np.fft.fftn(x, (8, 30), axes=(0, 1), norm="ortho"),
    "fftshift": np.fft.fftshift,
    "ifftshift": lambda x: np.fft.ifftshift(x, axes=1),
}


@pytest.mark.parametrize("function", SHORT.values(), ids=SHORT)
def test_functions_are_numpys(client, function):
    check(client, HOLES, sc.P("x"), function)


@pytest.mark.parametrize("function", [np.nanvar, np.nanstd])
def test_variances_in_a_complex_type_are_of_that_type(client, function):
    for x in (HOLES, HOLES + 1j):
        check(client, x, sc.P("x"), lambda x: function(x, axis=0, dtype=np.complex64))


@pytest.mark.parametrize("spec", [sc.P("x"), sc.P(None, "x")], ids=str)
@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("function", [*SHORT.values(), *LONG.values()], ids=[*SHORT, *LONG])
def test_functions_are_numpys_in_every_layout(client, name, spec, function):
    check(client, ARRAYS[name], spec, function)


def test_counts_wait_for_the_largest_integer(client):
    x = RANDOM.integers(0, 20, 4099)
    h = client.put(x, mesh=sc.Mesh(x=8))
    same(np.bincount(h), np.bincount(x))
    with pytest.raises(ValueError, match="negative integer"):
        np.bincount(h - 5)
    same(np.histogram(h * 0.1), np.histogram(x * 0.1))


def test_softmax_and_logsumexp_are_scipys(client):
    x = np.array([[1.0, -np.inf, 1000.0], [-np.inf, -np.inf, -np.inf]])
    h = client.put(x, mesh=sc.Mesh(x=2))
    same(client.xp.logsumexp(h, 1), np.array([1000.0, -np.inf]))
    same(client.xp.logsumexp(h, 1, b=2.0, keepdims=True), np.array([[1000.0 + np.log(2)], [-np.inf]]))
    same(client.xp.softmax(h[:1], 1), np.array([[0.0, 0, 1]]))
    same(client.xp.log_softmax(h[0]), np.array([-999.0, -np.inf, 0]))
    same(client.xp.logsumexp(client.put(np.array([1, 2]))), np.log(np.exp([1, 2]).sum()))
    single = client.put(np.array([0, 1], np.float32))
    assert client.xp.logsumexp(single, b=2.0).dtype == np.float32
    same(client.xp.logsumexp(single, b=[1, 2]), np.log(1 + 2 * np.e))  # in the type of both

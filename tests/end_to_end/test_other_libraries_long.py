"""The tests of `test_other_libraries.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_other_libraries import Case, X, check, fft, library, pd, signal, sparse, special, stats, xr

pytestmark = pytest.mark.long


linalg, optimize, interpolate = map(library, ("scipy.linalg", "scipy.optimize", "scipy.interpolate"))


spatial, cluster = map(library, ("scipy.spatial", "sklearn.cluster"))


scaling, metrics, linear, pca = map(
    library, ("sklearn.preprocessing", "sklearn.metrics", "sklearn.linear_model", "sklearn.decomposition")
)


CALLS: dict[str, Case] = {
    "DataFrame": lambda x: pd().DataFrame(x),
    "describe": lambda x: pd().DataFrame(x).describe(),
    "columns": lambda x: pd().DataFrame({"a": x[:, 0], "b": x[:, 1]}).corr(),
    "Series": lambda x: pd().Series(x[0]).cumsum(),
    "Index": lambda x: pd().Index(x[0]).sort_values(),
    "assign": lambda x: pd().DataFrame(X).assign(a=x[:, 0]),
    "Series + array": lambda x: pd().Series(X[:, 0]) + x[:, 0],
    "Series > array": lambda x: pd().Series(X[:, 0]) > x[:, 1],
    "DataFrame * row": lambda x: pd().DataFrame(X) * x[0],
    "isin": lambda x: pd().Series(X[:, 0]).isin(x[:9, 0]),
    "where": lambda x: pd().DataFrame(X).where(x > 0),
    "cut": lambda x: pd().cut(x[:, 0], 3).codes,
    "qcut": lambda x: pd().qcut(x[:, 0], 4).codes,
    "isna": lambda x: pd().isna(x),
    "iloc": lambda x: pd().DataFrame(X).iloc[np.argsort(x[:, 0])],
    "concat": lambda x: pd().concat([pd().DataFrame(X), pd().DataFrame(x)]),
    "rolling": lambda x: pd().DataFrame(x).rolling(3).mean().dropna(),
    "groupby": lambda x: pd().DataFrame(x).groupby(X[:, 0] > 0).mean(),
    "Series.groupby": lambda x: pd().Series(x[:, 0]).groupby(X[:, 1] > 0).sum(),
    "searchsorted": lambda x: pd().Series(np.sort(X[:, 0])).searchsorted(x[:, 0]),
    "DataArray.mean": lambda x: xr().DataArray(x, dims=("a", "b")).mean("a").values,
    "sel": lambda x: xr().DataArray(x, dims=("a", "b")).isel(a=slice(2, 5)).values,
    "DataArray * 2": lambda x: (xr().DataArray(x, dims=("a", "b")) * 2 + 1).values,
    "DataArray.rolling": lambda x: xr().DataArray(x, dims=("a", "b")).rolling(a=3).mean().values[2:],
    "Dataset": lambda x: xr().Dataset({"u": (("a", "b"), x)}).u.std().values,
    "any of a DataArray": lambda x: np.any(xr().DataArray(x, dims=("a", "b")), axis=0).values,
    "all of a DataArray": lambda x: np.all(xr().DataArray(x, dims=("a", "b"))).values,
    "to_pandas": lambda x: xr().DataArray(x, dims=("a", "b")).to_pandas(),
    "special.erf": lambda x: special().erf(x),
    "special.expit": lambda x: special().expit(x),
    "fft.rfft": lambda x: fft().rfft(np.asarray(x), axis=0),
    "stats.zscore": lambda x: stats().zscore(np.asarray(x)),
    "stats.pearsonr": lambda x: stats().pearsonr(np.asarray(x[:, 0]), np.asarray(x[:, 1])).statistic,
    "signal.detrend": lambda x: signal().detrend(np.asarray(x)),
    "linalg.circulant": lambda x: linalg().circulant(x[0]),
    "linalg.circulant of rows": lambda x: linalg().circulant(x[::7, ::2]),
    "linalg.toeplitz": lambda x: linalg().toeplitz(x[0], x[1]),
    "linalg.hankel": lambda x: linalg().hankel(x[:, 0]),
    "linalg.svdvals": lambda x: linalg().svdvals(x),
    "linalg.solve": lambda x: linalg().solve(np.asarray(x[:8]), np.asarray(x[8])),
    "optimize.minimize_scalar": lambda x: optimize().minimize_scalar(lambda t: float(((x - t) ** 2).sum())).fun,
    "interpolate.interp1d": lambda x: interpolate().interp1d(np.arange(8), x[0])(2.5),
    "interpolate.CubicSpline": lambda x: interpolate().CubicSpline(np.arange(8), x[0])(2.5),
    "spatial.KDTree": lambda x: spatial().KDTree(x).query(X[3])[1],
    "spatial.distance": lambda x: spatial().distance.pdist(np.asarray(x)),
    "sparse.diags": lambda x: sparse().diags([x[0], x[1, 1:]], [0, 1]).toarray(),
    "sparse.csr_array": lambda x: sparse().csr_array(np.asarray(x)).sum(),
    "StandardScaler": lambda x: scaling().StandardScaler().fit_transform(x),
    "MinMaxScaler": lambda x: scaling().MinMaxScaler().fit_transform(x),
    "KMeans": lambda x: cluster().KMeans(3, n_init=1, random_state=0).fit(x).inertia_,
    "LinearRegression": lambda x: linear().LinearRegression().fit(x[:, :3], x[:, 3]).coef_,
    "PCA": lambda x: pca().PCA(2).fit(x).explained_variance_,
    "r2_score": lambda x: metrics().r2_score(x[:, 0], x[:, 1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_other_libraries(client, name):
    check(client, CALLS[name])

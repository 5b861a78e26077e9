"""The tests of `test_other_libraries.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_other_libraries import Case, X, check, library, pd, sparse, special, xr

pytestmark = pytest.mark.long


linalg, optimize, interpolate = map(library, ("scipy.linalg", "scipy.optimize", "scipy.interpolate"))


spatial, cluster = map(library, ("scipy.spatial", "sklearn.cluster"))


scaling, metrics, linear = map(library, ("sklearn.preprocessing", "sklearn.metrics", "sklearn.linear_model"))


CALLS: dict[str, Case] = {
    "DataFrame": lambda x: pd().DataFrame(x),
    "columns": lambda x: pd().DataFrame({"a": x[:, 0], "b": x[:, 1]}).corr(),
    "Series": lambda x: pd().Series(x[0]).cumsum(),
    "Series + array": lambda x: pd().Series(X[:, 0]) + x[:, 0],
    "isin": lambda x: pd().Series(X[:, 0]).isin(x[:9, 0]),
    "where": lambda x: pd().DataFrame(X).where(x > 0),
    "cut": lambda x: pd().cut(x[:, 0], 3).codes,
    "iloc": lambda x: pd().DataFrame(X).iloc[np.argsort(x[:, 0])],
    "groupby": lambda x: pd().DataFrame(x).groupby(X[:, 0] > 0).mean(),
    "Series.groupby": lambda x: pd().Series(x[:, 0]).groupby(X[:, 1] > 0).sum(),
    "DataArray.mean": lambda x: xr().DataArray(x, dims=("a", "b")).mean("a").values,
    "DataArray * 2": lambda x: (xr().DataArray(x, dims=("a", "b")) * 2 + 1).values,
    "Dataset": lambda x: xr().Dataset({"u": (("a", "b"), x)}).u.std().values,
    "any of a DataArray": lambda x: np.any(xr().DataArray(x, dims=("a", "b")), axis=0).values,
    "all of a DataArray": lambda x: np.all(xr().DataArray(x, dims=("a", "b"))).values,
    "special.erf": lambda x: special().erf(x),
    "linalg.circulant": lambda x: linalg().circulant(x[0]),
    "linalg.circulant of rows": lambda x: linalg().circulant(x[::7, ::2]),
    "linalg.toeplitz": lambda x: linalg().toeplitz(x[0], x[1]),
    "linalg.svdvals": lambda x: linalg().svdvals(x),
    "optimize.minimize_scalar": lambda x: optimize().minimize_scalar(lambda t: float(((x - t) ** 2).sum())).fun,
    "interpolate.interp1d": lambda x: interpolate().interp1d(np.arange(8), x[0])(2.5),
    "spatial.KDTree": lambda x: spatial().KDTree(x).query(X[3])[1],
    "sparse.diags": lambda x: sparse().diags([x[0], x[1, 1:]], [0, 1]).toarray(),
    "StandardScaler": lambda x: scaling().StandardScaler().fit_transform(x),
    "KMeans": lambda x: cluster().KMeans(3, n_init=1, random_state=0).fit(x).inertia_,
    "LinearRegression": lambda x: linear().LinearRegression().fit(x[:, :3], x[:, 3]).coef_,
    "r2_score": lambda x: metrics().r2_score(x[:, 0], x[:, 1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_other_libraries(client, name):
    check(client, CALLS[name])

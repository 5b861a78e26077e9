"""The tests of `test_special.py` that take long."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, same
from end_to_end.test_special import X, scipy

pytestmark = pytest.mark.long

ENDS = np.array([-1000, -720, -700, -1, 0, 1, 40, 800, np.nan, np.inf, -np.inf])


SHORT = {
    "expit": (lambda special, x: special.expit(x), ENDS),
    "erf": (lambda special, x: special.erf(x), np.linspace(-7, 7, 4096)),
    "gammaln": (lambda special, x: special.gammaln(x), np.linspace(0.01, 200, 99).astype("f")),
    "logsumexp": (lambda special, x: special.logsumexp(x, axis=1, b=X, return_sign=True), X),
}


LONG = {
    "expit of float32": (lambda special, x: special.expit(x), np.linspace(-90, 90, 31).astype("f")),
    "expit of integers": (lambda special, x: special.expit(x), np.arange(-3, 4, dtype=np.int8)),
    "erf of float16": (lambda special, x: special.erf(x), X.astype(np.float16)),
    "erf of nothing": (lambda special, x: special.erf(x), X[:0]),
    "gammaln of integers": (lambda special, x: special.gammaln(x), np.arange(9)),
    "gammaln of a number": (lambda special, x: special.gammaln(x), np.array(0.5)),
    "logsumexp without signs": (lambda special, x: special.logsumexp(x, axis=0), X),
    "logsumexp of all": (
        lambda special, x: special.logsumexp(x, b=[1, -1, 2, 0, 0, 1], keepdims=True, return_sign=True),
        X,
    ),
}


@pytest.mark.parametrize(
    ("function", "x"),
    [*SHORT.values(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*SHORT, *LONG],
)
def test_functions_are_scipys(strict_client, function, x):
    same(function(strict_client.xp.special, strict_client.put(x, mesh=MESH)), function(scipy, x))

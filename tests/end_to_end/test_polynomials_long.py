"""The tests of `test_polynomials.py` that take long."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, check
from end_to_end.test_polynomials import RANDOM, I, V, X

pytestmark = pytest.mark.long

M, T = RANDOM.normal(size=(5, 5)), np.arange(13.0)


SHORT = {
    "vander": (lambda x: np.vander(x, 4, increasing=True), I.astype(np.int8)),
    "poly": (np.poly, V[:4]),
    "poly of complex pairs": (np.poly, np.array([1j, -1j])),
    "roots": (np.roots, np.array([0, 1.0, -6, 11, -6, 0, 0])),
    "polyval": (lambda x: np.polyval([1, 2, 3], x), I.astype(np.int8)),
    "polyval of many coefficients": (lambda x: np.polyval(x, np.linspace(-1, 1, 5)), np.tile(V, 3)),
    "polymul": (lambda x: np.polymul(x, [0, 0, 1, 2]), V),
    "polydiv": (lambda x: np.polydiv(x, [1, 2, 3]), V),
    "polydiv with a residue": (lambda x: np.polydiv(x, [3.0, 1]), np.array([1e17, 1.0, 2])),
    "polydiv by a leading 0": (lambda x: np.polydiv(x, x * np.array([0.0, 1, 6, 2, 4])), np.array([6, -1, 0, 2, 4])),
    "polyint": (lambda x: np.polyint(x, 2, k=[1, 2]), I),
    "polyfit": (lambda x: np.polyfit(x, V, 2, w=np.arange(1, 14), cov=True), T),
}


LONG = {
    "vander of 4,096": (lambda x: np.vander(x, 3), np.linspace(-1, 1, 4096)),
    "vander, one column": (lambda x: np.vander(x, 1), V.astype("f")),
    "vander, no column": (lambda x: np.vander(x, 0), V),
    "vander of nothing": (np.vander, V[:0]),
    "poly of integers": (np.poly, np.array([1, 2, 3])),
    "poly of a matrix": (np.poly, M),
    "poly of many": (np.poly, np.linspace(0, 1, 20)),
    "poly of float32": (np.poly, V[:3].astype("f")),
    "roots of complex": (lambda x: np.sort_complex(np.roots(x)), V[:4] * 1j + 1),
    "no roots": (np.roots, np.array([0, 3.0])),
    "roots, complex": (lambda x: np.sort_complex(np.roots(x)), np.array([1, 0, 1])),
    "roots of zero": (np.roots, np.array([0, 0])),
    "polyval, a number": (lambda x: np.polyval(x, 2.5), V),
    "polyval of no coefficients": (lambda x: np.polyval([], x), V),
    "polyval of complex": (lambda x: np.polyval([1, 2j, 3], x), X),
    "polyadd": (lambda x: np.polyadd(x, [1, 2]), V),
    "polyadd of a number": (lambda x: np.polyadd(x, 2), V),
    "polysub": (lambda x: np.polysub([1, 2], x), I),
    "polymul of zero": (lambda x: np.polymul(x, [0, 0]), I),
    "polydiv with residues of many": (lambda x: np.polydiv(x, [3.0, 1]), np.tile([1e17, 3.0, 2, 7e18], 10)),
    "polydiv of integers": (lambda x: np.polydiv([1, 2, 3, 4, 5], x), np.array([2, 1])),
    "polydiv of many": (lambda x: np.polydiv(x, [1, 0.2, 0.3]), np.tile(V, 2)),
    "polydiv by a longer one": (lambda x: np.polydiv(x, [1, 2, 3]), np.array([1, 2])),
    "polydiv without a remainder": (lambda x: np.polydiv(x, [1.0, 1.0]), np.array([1.0, 3, 2])),
    "polydiv by a number": (lambda x: np.polydiv(x, 2), np.array([1.0, 3, 2])),
    "polyder": (lambda x: np.polyder(x, 2), V),
    "polyder of integers": (np.polyder, I.astype(np.int8)),
    "polyder of a number": (np.polyder, np.array([3])),
    "polyder of order 0": (lambda x: np.polyder(x, 0), V),
    "polyint with one constant": (lambda x: np.polyint(x, 3, k=2), V),
    "polyint of float32": (np.polyint, V.astype("f")),
    "polyfit with all": (lambda x: np.polyfit(x, X, 2, full=True), T),
    "polyfit, unscaled": (lambda x: np.polyfit(x, X, 1, cov="unscaled"), T.astype(int)),
    "polyfit, covariances of several": (lambda x: np.polyfit(x, X, 1, cov=True), T.astype("f")),
}


@pytest.mark.parametrize(
    ("function", "x"),
    [*SHORT.values(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*SHORT, *LONG],
)
def test_functions_of_polynomials_are_numpys(strict_client, function, x):
    check(strict_client, function, x)


def test_a_poor_fit_warns(strict_client):
    with pytest.warns(np.exceptions.RankWarning):
        np.polyfit(strict_client.put(np.ones(5), mesh=MESH), np.ones(5), 1)

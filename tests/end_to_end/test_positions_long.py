"""The tests of `test_positions.py` that take long."""

import numpy as np
import pytest
from end_to_end.same_results import check
from end_to_end.test_positions import I, X

pytestmark = pytest.mark.long

SHORT = {
    "choose": (lambda x: np.choose(x, [10, x * 2, [1.5] * 6]), I % 3),
    "choose of many": (lambda x: np.choose(x, np.arange(240).reshape(40, 6), mode="clip"), I),
    "ravel_multi_index": (lambda x: np.ravel_multi_index((x, x % 4), (9, 4), mode=("wrap", "clip")), I),
    "diag_indices_from": (np.diag_indices_from, X[:6]),
    "ix_": (lambda x: np.ix_(x[:, 0], x[0] > 0, [1, 2]), I),
    "block": (lambda x: np.block([[x, x[:, :1]], [np.ones((2, 7))]]), X),
    "histogramdd": (lambda x: np.histogramdd(x, bins=(3, 4, [-3, 0, 3])), X[:, :3]),
    "correlate": (lambda x: [np.correlate(x, [1, 2j, 3], mode) for mode in ("valid", "same", "full")], X[:, 0] * 1j),
}


LONG = {
    "choose, wrapped": (lambda x: np.choose(x, [x, x + 1], mode="wrap"), I),
    "choose of one array": (lambda x: np.choose([0, 1, 0], x), I[:2, :3]),
    "choose of bool": (lambda x: np.choose(x, [1, 2.5]), I > 0),
    "choose of no rows": (lambda x: np.choose(x, [np.zeros((0, 6)), 1]), I[0] + 9),
    "choose of nothing": (lambda x: np.choose(x, [1, 2]), I[:0]),
    "choose of 4,096": (lambda x: np.choose(x % 2, [x, -x]), np.arange(4096)),
    "ravel_multi_index of an array": (lambda x: np.ravel_multi_index(x, (12, 12, 12)), np.abs(I[:3])),
    "ravel_multi_index of one axis": (lambda x: np.ravel_multi_index((x,), 12), np.abs(I)),
    "ix_ of one": (np.ix_, I[:0, 0]),
    "ix_ of a list of nothing": (lambda x: np.ix_(x, [], [True, False]), I[0]),
    "block of one list": (lambda x: np.block([x, 3.0]), X[:, 0]),
    "block of three": (lambda x: np.block([[[x, x]]]), X),
    "block of an array": (np.block, X),
    "histogramdd of columns": (
        lambda x: np.histogramdd((x, x[::-1]), bins=4, density=True, weights=np.abs(x)),
        X[:, 0],
    ),
    "histogramdd of numbers": (lambda x: np.histogramdd([x[0], x[1]], bins=3, range=[(-4, 4)]), X[:, 0]),
    "histogramdd of one axis": (lambda x: np.histogramdd(x, 4, range=[(-1, 1)]), X[:, 0]),
    "histogramdd of float32 in a range": (lambda x: np.histogramdd(x, 4, range=[(-1, 1)]), X[:, 0].astype("f")),
    "histogramdd of nothing": (lambda x: np.histogramdd(x, 4), X[:0].astype("f")),
    "histogramdd of four": (lambda x: np.histogramdd(x, 2, weights=I[:, 0]), X[:, :4]),
    **{
        f"correlate with a longer one, {mode}": (
            lambda x, mode=mode: np.correlate([1, 2j, 3, 0.5], x, mode),
            np.arange(9.0),
        )
        for mode in ("valid", "same", "full")
    },
    "correlate of integers": (lambda x: np.correlate(x, x), I[:, 0]),
}


@pytest.mark.parametrize(
    ("function", "x"),
    [*SHORT.values(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*SHORT, *LONG],
)
def test_functions_of_indices_are_numpys(strict_client, function, x):
    check(strict_client, function, x)

"""The tests of `test_set_operations.py` that take long."""

import numpy as np
import pytest
from end_to_end.same_results import check

pytestmark = pytest.mark.long

RANDOM = np.random.default_rng(5)


I = RANDOM.integers(-5, 6, (13, 6))  # noqa: E741


NAN = np.array([np.nan, 2.0, np.nan, -1, 2])


OTHERS = [3, -2, 17]


SHORT = {
    "union1d with a number": (lambda x: np.union1d(x, -1), I.astype(np.float32)),
    "union1d": (lambda x: np.union1d(x, [9, 9, -1]), I),
    "intersect1d": (lambda x: np.intersect1d(x, OTHERS, return_indices=True), I),
    "setdiff1d": (lambda x: np.setdiff1d(x, OTHERS), I),
    "setxor1d": (lambda x: np.setxor1d(x, OTHERS), I),
}


LONG = {
    "union1d of 4,096": (lambda x: np.union1d(x, np.arange(0, 9000, 3)), np.arange(4096)),
    "union1d of types": (lambda x: np.union1d(x, [1.5]), I.astype(np.int8)),
    "intersect1d without indices": (lambda x: np.intersect1d(OTHERS, x), I),
    "intersect1d, unique": (
        lambda x: np.intersect1d([1, 17, 3], x, assume_unique=True, return_indices=True),
        np.array([5, 3, 1]),
    ),
    "intersect1d of one": (lambda x: np.intersect1d(x, [], return_indices=True), np.array([5])),
    "setdiff1d, unique": (lambda x: np.setdiff1d(x, OTHERS, True), I),
    "setdiff1d of another": (lambda x: np.setdiff1d(OTHERS, x), I),
    "setxor1d, unique": (lambda x: np.setxor1d(x, [2, 3], True), np.array([5, 3, 1])),
    "setxor1d with NaN": (lambda x: np.setxor1d(x, [np.nan, 1.0]), NAN),
    "union1d with NaN": (lambda x: np.union1d(x, [np.nan, 1.0]), NAN),
    **{
        f"{f.__name__} of {what}": (lambda x, f=f: f(x, x), x)
        for f in (np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d)
        for what, x in (("nothing", np.zeros(0)), ("bool", I > 0), ("a number", np.array(3)))
    },
}


@pytest.mark.parametrize(
    ("function", "x"),
    [*SHORT.values(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*SHORT, *LONG],
)
def test_set_operations_are_numpys(strict_client, function, x):
    check(strict_client, function, x)

"""The tests of `test_callables.py` that take long."""

import numpy as np
import pytest
from end_to_end.same_results import check
from end_to_end.test_callables import RANDOM, V, X

pytestmark = pytest.mark.long

I, CUBE = RANDOM.integers(-5, 6, (13, 6)), RANDOM.normal(size=(3, 4, 5))  # noqa: E741


SHORT = {
    "apply_along_axis": (lambda x: np.apply_along_axis(lambda v: v.sum() * v, 0, x), X),
    "apply_along_axis, a matrix for each": (lambda x: np.apply_along_axis(lambda v: np.outer(v, v[:2]), 1, x), CUBE),
    "apply_along_axis by values": (
        lambda x: np.apply_along_axis(lambda v: v[:2] if v[0] > 0 else v[1:3], 0, x),
        X[:, :3],
    ),
    "apply_over_axes": (lambda x: np.apply_over_axes(np.sum, x, [0, -1]), CUBE),
    "piecewise": (lambda x: np.piecewise(x, [x < 0, x > 1], [lambda v: -v, 2, lambda v: v * 10]), X),
}


LONG = {
    "apply_along_axis with arguments": (lambda x: np.apply_along_axis(lambda v, k: v.max() - k, -1, x, 2), X),
    "apply_along_axis, two numbers": (lambda x: np.apply_along_axis(lambda v: (v[1], [v[0]][0]), 1, x), X),
    "apply_along_axis of vectors of nothing": (lambda x: np.apply_along_axis(np.sum, 1, x), X[:, :0]),
    "apply_along_axis of a vector": (lambda x: np.apply_along_axis(np.sum, 0, x), V),
    "apply_along_axis, a number": (lambda x: np.apply_along_axis(lambda v: 3, 0, x), X),
    "apply_along_axis of 4,096": (lambda x: np.apply_along_axis(np.cumsum, 0, x), np.arange(4096).reshape(512, 8)),
    "apply_over_axes, flipped": (lambda x: np.apply_over_axes(np.flip, x, 1), CUBE),
    "apply_over_axes of none": (lambda x: np.apply_over_axes(np.sum, x, []), CUBE),
    "piecewise of integers": (lambda x: np.piecewise(x, [x < 0], [lambda v, k: v / k], 3), I),
    "piecewise, one condition": (lambda x: np.piecewise(x, x > 0, [1, -1.5]), V),
    "piecewise of a number": (
        lambda x: np.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v * 2]),
        np.array(3.5),
    ),
    "piecewise by rows": (lambda x: np.piecewise(x, [x[:, 0] < 0], [lambda v: v * 0]), X),
    "piecewise of nothing": (lambda x: np.piecewise(x, [x < 0], [1, 2]), X[:0]),
}


@pytest.mark.parametrize(
    ("function", "x"),
    [*SHORT.values(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*SHORT, *LONG],
)
def test_functions_of_functions_are_numpys(strict_client, function, x):
    check(strict_client, function, x)

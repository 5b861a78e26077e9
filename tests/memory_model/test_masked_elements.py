"""Python's protocols of masked elements and of numbers in traced functions run, or are refused by name."""

import copy
import math
import operator

import numpy as np
import pytest
from memory_model.in_process import InProcessClient
from rows import rows

import shardcall as sc

OUTSIDE = np.zeros(3)
X = np.array([0.5, -1.5, 2.25, 3.0, 0.75])


def assigned(m):
    m[m > 1] = 0
    m[m < 0.6] = m[m < 0.6] * 2
    m += 1
    return m.sum()


@rows(
    "function",
    [
        lambda m: m[m > 1].sum(),
        lambda m: m[m > 1][m[m > 1] < 3].max(),
        lambda m: sum(np.sum(part) for part in divmod(m, 2)),
        lambda m: sum(np.sum(part) for part in np.modf(m)),
        lambda m: np.round(m, 1).sum() + abs(-m).min(),
        lambda m: m @ m,
        lambda m: copy.deepcopy(m).mean() + copy.copy(m).prod(),
        assigned,
    ],
)
def test_protocols_of_masked_elements(function):
    result = InProcessClient().jit(lambda x: function(x[x > 0]))(X)
    np.testing.assert_allclose(result.get(), function(X[X > 0]))


@rows(
    ("function", "named"),
    [
        (lambda m: m[::-1], r"an index other than a condition on them, such as m\[m > 2\],"),
        (lambda m: operator.setitem(m, 0, 1), r"an index other than a condition"),
        (max, r"a loop, or a function of Python such as max\(\) or list\(\) in place of np\.max,"),
        (list, "a loop, or a function of Python"),
        (len, r"len\(\)"),
        (reversed, r"len\(\)"),
        (float, r"float\(\)"),
        (math.floor, r"float\(\)"),
        (range, r"an index, a size or range\(\)"),
        (bool, "a condition"),
        (lambda m: m @ np.eye(3), r"numpy\.matmul"),
        (lambda m: operator.setitem(OUTSIDE, slice(3), m), r"numpy\.asarray, or an assignment to elements .*,"),
        (lambda m: operator.setitem(np.zeros(5), slice(5), m), "an assignment to elements at another index"),
        (lambda m: m.T, "T of the"),
    ],
)
def test_other_protocols_of_these_are_refused_by_name(function, named):
    with pytest.raises(sc.TracingError, match=rf"^{named} .*where a mask is true needs their number.*np\.where"):
        InProcessClient().jit(lambda x: function(x[x > 0]))(X)


@rows(
    ("function", "named"),
    [
        (lambda n: {n: 1}, r"hash\(\), an item of a set or a key of a dict"),
        (lambda n: f"{n:.2f}", "a format"),
        (lambda n: n.bit_length(), "the attribute bit_length"),
        (lambda n: [1, 2, 3][n], "an index, a size or range"),
    ],
)
def test_protocols_of_numbers_that_need_the_value_are_refused_by_name(function, named):
    with pytest.raises(sc.TracingError, match=rf"^{named}.* needs the value of a number .*static="):
        InProcessClient().jit(lambda x, n: x + function(n))(X, 2)


def test_numbers_have_the_operators_of_integers():
    results = InProcessClient().jit(
        lambda n: [n & 6, 1 | n, n ^ 3, n << 1, 9 >> n, ~n, copy.deepcopy(n) & np.array([3])]
    )(2)
    assert [item.get().tolist() for item in results] == [2, 3, 1, 4, 2, -3, [2]]

"""Python's protocols of masked elements and of numbers in traced functions run, or are refused by name."""

import copy
import math
import operator

import numpy as np
import pytest
from memory_model.in_process import InProcessClient
from rows import rows

import shardcall as sc

CLIENT = InProcessClient()
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
        lambda m: m.sum(axis=-1) + m.mean(keepdims=True) + (m > 1).max() + m.astype(np.float32).min(axis=(0,)),
        lambda m: copy.deepcopy(m).mean() + copy.copy(m).prod(),
        assigned,
    ],
)
def test_protocols_of_masked_elements(function):
    result = CLIENT.jit(lambda x: function(x[x > 0]))(X)
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
        (CLIENT.xp.sort, r"numpy\.sort"),
        (CLIENT.diff, r"numpy\.diff"),
        (lambda m: m, "what the function returns"),
        (lambda m: m + m[m > 1], "a computation with elements where another mask is true"),
        (lambda m: operator.setitem(OUTSIDE, slice(3), m), r"numpy\.asarray, or an assignment to elements .*,"),
        (lambda m: operator.setitem(np.zeros(5), slice(5), m), "an assignment to elements at another index"),
        (lambda m: m.T, "T"),
    ],
)
def test_other_protocols_of_these_are_refused_by_name(function, named):
    with pytest.raises(sc.TracingError, match=rf"^{named}.* needs the number of .*where a mask is true.*np\.where"):
        CLIENT.jit(lambda x: function(x[x > 0]))(X)


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


def test_functions_of_the_mesh_take_masked_elements_as_those_of_numpy():
    rows = X.reshape(5, 1) + np.arange(3)

    def computed(xp, x, rows):
        m, r = x[x > 0], rows[x > 0]
        values = xp.where(xp.sqrt(m) > 1, xp.clip(m, 1, 2), xp.astype(xp.add(1, m), np.float64))
        return [xp.sum(values), xp.mean(m, axis=-1), xp.max(m), xp.count_nonzero(m), xp.sum(xp.sum(r, axis=1)),
                xp.sum(r, axis=0, keepdims=True), xp.max(r, axis=(0, 1)), xp.min(m, initial=0.25)]  # fmt: skip

    results = CLIENT.jit(lambda x, rows: [CLIENT.sum(x[x > 0]), *computed(CLIENT.xp, x, rows)])(X, rows)
    for result, expected in zip(results, [X[X > 0].sum(), *computed(np, X, rows)], strict=True):
        np.testing.assert_allclose(result.get(), expected)
    with pytest.raises(np.exceptions.AxisError):
        CLIENT.jit(lambda x: x[x > 0].sum(axis=1))(X)


def test_functions_of_the_mesh_take_arguments_of_any_name():
    result = CLIENT.jit(lambda x: CLIENT.xp.interp(x, xp=[0, 1, 2], fp=[1, 2, 3]))(X)
    np.testing.assert_allclose(result.get(), np.interp(X, xp=[0, 1, 2], fp=[1, 2, 3]))


@rows("key", [lambda x: (x[:, 0] > 0, 1), lambda x: x > 0])
def test_assignments_at_a_mask_that_need_the_number_are_refused_with_what_to_write(key):
    with pytest.raises(sc.TracingError, match=r"their number.*write x\[mask\] = values\[mask\]"):
        CLIENT.jit(lambda x: operator.setitem(x, key(x), np.arange(7.0)))(np.ones((5, 2)))


def test_numbers_have_the_operators_of_integers():
    results = InProcessClient().jit(
        lambda n: [n & 6, 1 | n, n ^ 3, n << 1, 9 >> n, ~n, copy.deepcopy(n) & np.array([3])]
    )(2)
    assert [item.get().tolist() for item in results] == [2, 3, 1, 4, 2, -3, [2]]

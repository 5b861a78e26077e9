"""Arrays that a traced function creates by NumPy: of this process until a value of the program is written to them."""

import copy
import operator

import numpy as np
import pytest
from memory_model.in_process import InProcessClient
from rows import rows

import shardcall as sc

X = np.array([0.5, -1.5, 2.25])
OUTSIDE = np.zeros(3)
sets_shapes = pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # of NumPy 2.5


def stencil(x):
    out = np.zeros_like(np.ones(3))
    out[1:-1] = x[:-2] + x[2:]
    return out


def recurrence(x):
    z = np.empty((4, 3))
    z[0] = x
    for i in np.arange(1, 4):
        z[i] = z[i - 1] * 0.5 + x
    return z


def histogram(x):
    counts = np.zeros(4)
    np.add.at(counts, np.array([1, 3, 1]), x)
    return counts


def element_by_element(x):
    z = np.eye(3)
    for i in range(3):
        for j in range(i):
            z[i][j] -= x[i] * x[j]
    return z


def views_before_the_first_write(x):
    z = np.zeros((2, 3))
    transposed, flat, row = z.T, z.reshape(-1), z[1]
    z[0] = x
    transposed[0, 1] = x[0]
    flat[5] = x[2]
    row += 1
    return z, transposed * 1, flat[::2] * 1, row


def changed(x):
    a, b, c, d, e = np.zeros(3), np.ones(3), np.zeros(3), np.full(3, x[0]), np.zeros(())
    np.add(x, 1, out=a)
    b += x
    np.copyto(c, x)
    d.fill(x[1])
    e += x.sum()
    return a, b, c, d, e, np.multiply(x, 2, np.empty(3))


def masks(x):
    z = np.zeros(3)
    z[x > 1] = 7
    z[x < 0] = x[x < 0] * 2
    return z


def numbers_of_this_process(x):
    z = np.zeros(3)
    z += 1
    z[0] = 3
    z = z * 2 - np.linspace(0, 1, 3)
    total = sum(int(i) for i in np.arange(4)) + float(np.ones(())) + [0, 1, 2][np.arange(3)[1]]
    if z[0] > 4 and isinstance(z, np.ndarray) and z.dtype == np.float64 and len(z) == 3:
        total += z.max()
    return x[np.array([2, 0, 1])] * total + z


def joined(x):
    rotation = np.array([[x[0], -x[1]], [x[1], x[0]]])
    return rotation @ x[:2], np.asarray(x) + np.copy(x), np.array([1, x[0], 2.5]), np.concatenate([np.zeros(2), x])


def read_after_writes(x):
    z = np.zeros(3)
    z[1:] = x[1:]
    backwards = z[::-1]
    z[0] = 5
    return (
        backwards,
        z.sum(),
        np.dot(z, x),
        z @ x,
        z.max(axis=0),
        -z,
        z**2,
        z.reshape(3, 1).T,
        copy.copy(z),
        2 in [1, 2],
    )


def results(function, client):
    returned = client.jit(function)(client.put(X))
    return [item.get() for item in (returned if isinstance(returned, tuple) else (returned,))]


@rows(
    "function",
    [
        *(stencil, recurrence, histogram, element_by_element, views_before_the_first_write),
        *(changed, masks, numbers_of_this_process, joined, read_after_writes),
    ],
)
def test_a_function_that_fills_arrays_runs_unchanged(function):
    expected = function(X)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, value in zip(results(function, InProcessClient()), expected, strict=True):
        np.testing.assert_allclose(result, value, strict=True)


OPERATIONS = {
    **{name: getattr(operator, name) for name in ("neg", "abs", "inv", "pos", "index")},
    "element": lambda z: z[1],
    "rows": list,
    "sum": sum,
    "contains": lambda z: 2 in z,
    "power": lambda z: z**0.5,
    "text": str,
    "deep copy": copy.deepcopy,
    "list": lambda z: z.tolist(),
    "shape": lambda z: (z.shape, z.T.shape, z.strides, z.flags.c_contiguous),
    "equal": lambda z: (z == [1, 2, 3]).all(),
    "unique": np.unique,
    "split": lambda z: np.split(z, 3),
    "class": lambda z: isinstance(z, np.ndarray),
    "assignment": lambda z: operator.setitem(z, slice(1, None), [5, 6]) or z,
    "shape that is set": lambda z: setattr(z, "shape", (3, 1)) or z,
}


@sets_shapes
@rows("name", OPERATIONS)
def test_an_operation_without_values_of_the_program_is_numpys(name):
    seen = []

    def function(x):
        with np.errstate(all="ignore"):
            try:
                seen.append(OPERATIONS[name](np.array([1, 2, 3])))
            except (TypeError, ValueError) as error:
                seen.append(type(error))
        return x

    function(X)
    InProcessClient().jit(function)(X)
    expected, actual = seen
    assert repr(actual) == repr(expected)


def aliased(x):
    z = np.zeros(3)
    kept = np.ndarray.view(np.lib.stride_tricks.as_strided(z))
    z[0] = x[0]
    return z + kept


def shaped(x):
    z = np.zeros((2, 2))
    z.shape = (4,)
    z[0] = x[0]
    return z


def view_shaped(x):
    z = np.zeros((2, 3))
    flat = z.reshape(-1)
    flat.shape = (3, 2)
    z[0] = x
    return flat.sum(axis=0)


def element_of_outside(x):
    OUTSIDE[0] = x[0]


def slice_of_outside(x):
    OUTSIDE[1:] = x[1:]


def sum_of_outside(x):
    total = OUTSIDE
    total += x


@sets_shapes
@rows(
    ("function", "message"),
    [
        (aliased, r"aliased .*memory another array of this process has.*client\.xp\.zeros"),
        (shaped, r"shaped .*shape it has set.*client\.xp\.zeros"),
        (view_shaped, r"view_shaped .*view that the mesh does not have, or whose shape it has set"),
        (element_of_outside, r"^an assignment to elements of an array of this process needs .*np\.zeros\(n\)"),
        (slice_of_outside, r"^an assignment to elements of an array of this process needs .*xp\.asarray\(z\)"),
        (sum_of_outside, r"^a write to an array of this process .*t = t \+ u"),
        (lambda x: np.add(x, 1, out=OUTSIDE), r"^a write to an array of this process .*xp\.asarray\(t\)"),
    ],
)
def test_writes_to_memory_that_stays_in_this_process_are_refused(function, message):
    with pytest.raises(sc.TracingError, match=message):
        InProcessClient().jit(function)(X)
    assert not OUTSIDE.any()

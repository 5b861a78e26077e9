"""The tests of `test_ufunc_methods.py` that take long."""

import warnings

import numpy as np
import pytest
from end_to_end.test_ufunc_methods import KEYS, MASK, MESH, RANDOM, I, X
from rows import one_in

import shardcall as sc

pytestmark = pytest.mark.long

SMALL = RANDOM.integers(-3, 4, 13).astype("i1")


MANY = RANDOM.normal(size=4096)


@pytest.fixture(scope="module")
def put(server):
    """Puts arrays on the mesh, for a client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield lambda x: client.put(x, mesh=MESH)


def at(ufunc, x, key, *others):
    return lambda a: ufunc.at(a, key, *others), x


COMPUTED = {
    "reduce, subtract": (np.subtract.reduce, np.abs(X)),
    "reduce, subtract integers": (lambda x: np.subtract.reduce(x, initial=7), SMALL),
    "reduce, divide": (lambda x: np.divide.reduce(x, 1, keepdims=True), I),
    "reduce, power": (np.power.reduce, np.abs(SMALL)),
    "reduce, floor_divide where": (lambda x: np.floor_divide.reduce(x, where=MASK, initial=99), I),
    "reduce, arctan2": (np.arctan2.reduce, X[4:7].astype("f4")),
    "reduce, logical_xor": (lambda x: np.logical_xor.reduce(x, axis=None), X > 0),
    "reduce, bitwise_and": (lambda x: np.bitwise_and.reduce(x, axis=(0, 1)), I | 8),
    "reduce, bitwise_xor of nothing": (np.bitwise_xor.reduce, I[:0]),
    "reduce, gcd": (lambda x: np.gcd.reduce(x, initial=12), I * 6),
    "reduce, gcd of one": (np.gcd.reduce, -I[:1]),
    "reduce, hypot of no axis": (lambda x: np.hypot.reduce(x, ()), X),
    "reduce, lcm where": (lambda x: np.lcm.reduce(x, 1, where=MASK, initial=1), I),
    "reduce, fmax": (np.fmax.reduce, X),
    "reduce, hypot": (np.hypot.reduce, X),
    "reduce, logaddexp": (lambda x: np.logaddexp.reduce(x, 1), X),
    "reduce, maximum in float32": (lambda x: np.maximum.reduce(x, dtype="f4"), SMALL),
    "reduce, add in int8": (lambda x: np.add.reduce(x, dtype="i1"), SMALL),
    "reduce, logical_and from false": (lambda x: np.logical_and.reduce(x, initial=False), X > 0),
    "reduce, heaviside": (np.heaviside.reduce, X[:2]),
    "accumulate, add": (np.add.accumulate, SMALL),
    "accumulate, add in int8": (lambda x: np.add.accumulate(x, dtype="i1"), SMALL),
    "accumulate, multiply": (lambda x: np.multiply.accumulate(x, 1), X),
    "accumulate, maximum": (np.maximum.accumulate, X),
    "accumulate, minimum": (lambda x: np.minimum.accumulate(x, -1), I),
    "accumulate, maximum of many": (np.maximum.accumulate, MANY),
    "accumulate, fmin": (np.fmin.accumulate, X),
    "accumulate, subtract": (np.subtract.accumulate, SMALL.astype("u1")),
    "accumulate, divide": (np.divide.accumulate, I),
    "accumulate, logical_or": (np.logical_or.accumulate, SMALL),
    "accumulate, nothing": (np.maximum.accumulate, X[:0]),
    "reduceat, add": (lambda x: np.add.reduceat(x, [0, 4, 2, 12, 12, 5]), X),
    "reduceat, add of an axis": (lambda x: np.add.reduceat(x, [0, 3], axis=1, dtype="f8"), I),
    "reduceat, maximum": (lambda x: np.maximum.reduceat(x, [0, 4, 9]), X),
    "reduceat, subtract": (lambda x: np.subtract.reduceat(x, [0, 4, 9]), SMALL),
    "reduceat, logical_and": (lambda x: np.logical_and.reduceat(x, [0, 4, 9]), X > -1),
    "reduceat, gcd": (lambda x: np.gcd.reduceat(x, [0, 4, 9]), I * 4),
    "reduceat, gcd of one": (lambda x: np.gcd.reduceat(x, [0, 4, 9, 12]), -I),
    "reduceat, alone": (lambda x: np.add.reduceat(x, [3]), SMALL),
    "reduceat, nowhere": (lambda x: np.add.reduceat(x, []), SMALL),
    "outer, add": (lambda x: np.add.outer(x, x), SMALL),
    "outer, multiply": (lambda x: np.multiply.outer(x, np.arange(3.0)), I),
    "outer, a number": (lambda x: np.subtract.outer(2, x), X.astype("f4")),
    "outer, less": (lambda x: np.less.outer(x[0], x, dtype=None), X),
    "where": (lambda x: np.where(MASK, np.add(x, 1, where=MASK), 0), X),
    "where, power of integers": (lambda x: np.where(SMALL > 0, np.power(2, x, where=x > 0), 0), SMALL.astype(int)),
    "where, a wide mask": (lambda x: np.where(MASK, np.add(x, 1, where=MASK), 0), X[0]),
}


UPDATES = {
    "add": at(np.add, X, KEYS, 1.5),
    "add rows": at(np.add, X, KEYS, np.arange(36.0).reshape(6, 6)),
    "add pairs": at(np.add, X, (KEYS, [0, 1, 1, 2, 1, 0]), np.arange(6.0)),
    "add to integers": at(np.add, I, KEYS, 300),
    "add floats to integers": at(np.add, I, KEYS, 1.5),
    "add doubles to floats": at(np.add, X.astype("f4"), KEYS, np.arange(6.0)[:, None]),
    "add by a mask": at(np.add, X, X > 0, 1),
    "add by a slice": at(np.add, X, slice(2, 9), np.arange(6)),
    "add everywhere": at(np.add, X, ..., 1),
    "add nowhere": at(np.add, X, [], 1),
    "subtract": at(np.subtract, SMALL, KEYS, 100),
    "multiply": at(np.multiply, X, KEYS, 2),
    "maximum": at(np.maximum, X, KEYS, [[1.0], [2], [3], [np.nan], [5], [-9]]),
    "minimum of integers": at(np.minimum, SMALL, KEYS, [3, 2, 1, -9, 7, -300]),
    "divide": at(np.divide, X, KEYS, 2),
    "divide integers": at(np.divide, I, KEYS, 2),
    "power": at(np.power, SMALL, KEYS, 2),
    "negative": at(np.negative, X, KEYS),
    "bitwise_or": at(np.bitwise_or, I, KEYS, [[1], [2], [4], [8], [16], [32]]),
    "sqrt by a mask": at(np.sqrt, X, X > 0),
    "arctan2 by a slice": at(np.arctan2, X, (slice(1, 4), [0, 2]), 2.0),
    "many": at(np.add, MANY, RANDOM.integers(0, 4096, 4096), MANY),
}


@pytest.mark.parametrize("name", one_in(3, COMPUTED))
def test_methods_of_ufuncs_are_numpys(put, name):
    function, x = COMPUTED[name]
    with warnings.catch_warnings(action="ignore"):
        expected, result = function(x), function(put(x))
    values = result if isinstance(result, np.ndarray) else result.get()
    assert (values.dtype, values.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(values, expected, rtol=1e-6 if values.dtype == "f4" else 1e-11)


@pytest.mark.parametrize("name", one_in(2, UPDATES))
def test_updates_of_elements_are_numpys(put, name):
    update, x = UPDATES[name]
    h, numpys = put(x), x.copy()
    with warnings.catch_warnings(action="ignore"):
        update(numpys)
        assert update(h) is None
    assert (h.dtype, h.shape) == (numpys.dtype, numpys.shape)
    np.testing.assert_allclose(h.get(), numpys, rtol=1e-6 if h.dtype == "f4" else 1e-11)

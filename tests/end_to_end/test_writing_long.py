"""The tests of `test_writing.py` that take long."""

import copy
import warnings

import numpy as np
import pytest
from end_to_end.test_writing import MASK, MESH, X
from rows import one_in

import shardcall as sc

pytestmark = pytest.mark.long

MANY = np.arange(4096) % 97


@pytest.fixture(scope="module")
def put(server):
    """Puts arrays on the mesh, for a client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield lambda x, spec=None: client.put(x, mesh=MESH, spec=spec)


def check(put, write, x, *others):
    """Compares an array that NumPy changes with one on the mesh, whose other operands are there, too."""
    h, numpys = put(x), x.copy()
    before, spec = copy.copy(h), h.spec
    operands = [put(item) if isinstance(item, np.ndarray) else item for item in others]
    with warnings.catch_warnings(action="ignore"):
        write(numpys, *others)
        result = write(h, *operands)
    assert result is None or result is h
    assert (h.dtype, h.shape, h.spec) == (numpys.dtype, numpys.shape, spec)
    np.testing.assert_allclose(h.get(), numpys, rtol=1e-12)
    np.testing.assert_array_equal(before.get(), x)


WRITES = {
    "copyto": (np.copyto, X, X[0]),
    "copyto a number": (np.copyto, X.astype("i4"), 7),
    "copyto by a mask": (lambda a, b, m: np.copyto(a, b, where=m), X, -X, MASK),
    "copyto by a row of a mask": (lambda a, m: np.copyto(a, 1.5, where=m), X, MASK[0]),
    "copyto by a list": (lambda a: np.copyto(a, 3, where=[1, 0, 1, 1, 0, 0]), X),
    "copyto by no rule": (lambda a, b: np.copyto(a, b, "unsafe"), MANY, MANY * 1.5),
    "copyto of complex numbers": (lambda a, b: np.copyto(a, b, "unsafe"), X, X + 1j),
    "copyto without axes": (np.copyto, np.array(2.0), 5),
    "copyto bool": (np.copyto, MASK, ~MASK[:, :1]),
    "put": (np.put, X, np.array([5, -1, 70]), np.array([1.0, 2, 3])),
    "put fewer": (np.put, X, np.array([[5, -1], [9, 8]]), np.array([1.0, 2, 3])),
    "put more": (np.put, X.astype("f4"), np.array([5]), np.array([1, 2], "f4")),
    "put one twice": (lambda a, i: np.put(a, i, [3, 4]), X, np.array([1, 1])),
    "put wrapped": (lambda a, i: np.put(a, i, [1, 2, 3], mode="wrap"), X, np.array([100, -200, 3])),
    "put clipped": (lambda a, i: np.put(a, i, [1, 2, 3], mode="clip"), X, np.array([100, -200, 3])),
    "put numbers cut off": (lambda a: np.put(a, [0, 1], [1.7, -2.2]), MANY),
    "put floats": (lambda a, v: np.put(a, [0], v), MANY, np.array([1.75])),
    "put nothing": (lambda a: np.put(a, [], 1), X),
    "put at true": (lambda a: np.put(a, [True, False], 9), X),
    "place": (np.place, X, MASK, np.array([1.0, 2, 3])),
    "place one": (np.place, MANY, MANY > 50, 5),
    "place by numbers": (np.place, X, X, np.array([1.0, 2])),
    "place of no values": (lambda a, m: np.place(a, m, []), X, MASK & False),
    "place nowhere": (np.place, X[:0], MASK[:0], np.array([1.0, 2])),
    "putmask": (np.putmask, X, MASK, -X),
    "putmask fewer": (np.putmask, X, MASK.ravel(), np.array([1.0, 2, 3, 4, 5])),
    "putmask one": (np.putmask, X, MASK, 4),
    "putmask none": (lambda a, m: np.putmask(a, m, []), X, MASK),
    "fill_diagonal": (np.fill_diagonal, X, np.array([1.0, 2, 3, 4])),
    "fill_diagonal of wide": (np.fill_diagonal, X.T.copy(), 7),
    "fill_diagonal around": (lambda a: np.fill_diagonal(a, [1, 2, 3, 4], wrap=True), X),
    "fill_diagonal of a cube": (np.fill_diagonal, np.zeros((5, 5, 5), "i8"), 3),
    "fill_diagonal of nothing": (np.fill_diagonal, X[:0], 3),
    "put, the method": (lambda a, i: a.put(i, [1, 2], mode="wrap"), X, np.array([100, -200, 3])),
    "sort": (lambda a: a.sort(0, kind="mergesort"), X),
    "partition": (lambda a: a.partition(range(13), 0), X),
    "partition of many": (lambda a: a.partition(range(4096)), MANY),
    "fill": (lambda a: a.fill(-1.75), MANY),
    "fill bool": (lambda a: a.fill(2), MASK),
    "fill with an array": (lambda a, v: a.fill(v), X.astype("f4"), np.array(0.1)),
    "fill without axes": (lambda a: a.fill(None), np.array(2.0)),
    "fill nothing": (lambda a: a.fill(1), X[:0]),
    "put_along_axis": (lambda a: np.put_along_axis(a, np.array([[1], [2]]), 5, 0), X),
}


OUTPUTS = {
    "add": (lambda a, b: np.add(b, 1, out=a), X, X),
    "add itself": (lambda a: np.add(a, a, out=a), X),
    "add a row": (lambda a, b: np.add(b, 1, a), X, X[0]),
    "add in float32": (lambda a, b: np.multiply(b, 3, out=a), X.astype("f4"), X),
    "add by no rule": (lambda a, b: np.multiply(b, 30, out=a, casting="unsafe"), MANY, MANY * 1.25),
    "add where": (lambda a, b, m: np.add(b, 1, out=a, where=m), X, -X, MASK),
    "add where, by a row": (lambda a, b, m: np.add(b, 1, out=a, where=m), X, -X, MASK[0]),
    "divide where": (lambda a, m: np.divide(1, a, out=a, where=m), X, MASK),
    "compare": (lambda a, b: np.less(b, 0, out=a), MASK, X),
    "sum": (lambda a, b: np.sum(b, 0, out=a), np.zeros(6), X),
    "sum in the type of out": (lambda a, b: np.sum(b, 0, out=a), np.zeros(6), X.astype("f4")),
    "sum to integers": (lambda a, b: np.sum(b, 0, out=a), np.zeros(6, int), X * 7),
    "max": (lambda a, b: b.max(0, a), np.zeros(6), X),
    "cumsum": (lambda a, b: np.cumsum(b, 0, out=a), X, X),
    "clip": (lambda a: np.clip(a, 0, 1, out=a), X),
    "take": (lambda a, b: np.take(b, [0, 2], 0, out=a), X[:2], X),
    "concatenate": (lambda a, b: np.concatenate([b, b], out=a), np.zeros((26, 6)), X),
    "matmul": (lambda a, b: np.matmul(b.T, b, out=a), np.zeros((6, 6)), X),
    "dot": (lambda a, b: np.dot(b.T, b, out=a), np.zeros((6, 6)), X),
    "reduce": (lambda a, b: np.add.reduce(b, out=a), np.zeros(6), X),
    "accumulate": (lambda a, b: np.maximum.accumulate(b, out=a), X, X),
    "outer": (lambda a, b: np.multiply.outer(b, b, out=a), np.zeros((6, 6)), X[0]),
    "median": (lambda a, b: np.median(b, 0, out=a), np.zeros(6), X),
}


@pytest.mark.parametrize("name", one_in(2, [*WRITES, *OUTPUTS]))
def test_an_array_is_changed_as_numpys(put, name):
    check(put, *{**WRITES, **OUTPUTS}[name])


@pytest.mark.parametrize(
    "write",
    [
        lambda a, i: a.put(i, [1, 2, 3]),
        lambda a, _: np.put(a, [-1, 70, -78], 4),
        lambda a, _: a.fill(5),
        lambda a, _: a.partition(range(13), 0),
    ],
)
def test_an_array_sharded_along_its_last_axis_stays_so(put, write):
    h, x, indices = put(X, sc.P(None, "x")), X.copy(), np.array([5, -1, 70])
    write(h, put(indices))
    write(x, indices)
    assert h.spec == sc.P(None, "x")
    np.testing.assert_array_equal(h.get(), x)


REFUSED = {
    "copyto of floats": (TypeError, lambda a: np.copyto(a, 1.5), MANY),
    "copyto of a list of floats": (TypeError, lambda a: np.copyto(a, [1.5]), MANY),
    "copyto of a large number": (OverflowError, lambda a: np.copyto(a, 300), MANY.astype("u1")),
    "copyto by another rule": (ValueError, lambda a: np.copyto(a, 1, casting="foo"), MANY),
    "copyto of another shape": (ValueError, lambda a: np.copyto(a, [1.0, 2]), X),
    "copyto by integers": (TypeError, lambda a: np.copyto(a, 1, where=np.ones(6, int)), X),
    "copyto by another mask": (ValueError, lambda a: np.copyto(a, 1, where=[True, False]), X),
    "put beyond the end": (IndexError, lambda a: np.put(a, [99], 1), X),
    "put in nothing": (IndexError, lambda a: np.put(a, [0], 1, mode="clip"), X[:0]),
    "put of another mode": (ValueError, lambda a: np.put(a, [0], 1, mode="x"), X),
    "put at floats": (TypeError, lambda a: np.put(a, np.array([0.0]), 1), X),
    "put of a large number": (OverflowError, lambda a: np.put(a, [0], 300), MANY.astype("u1")),
    "put of complex numbers": (TypeError, lambda a: np.put(a, [0], 1j), X),
    "place by another mask": (ValueError, lambda a: np.place(a, [True], 1), X),
    "place of no values": (ValueError, lambda a: np.place(a, MASK, []), X),
    "place of floats": (TypeError, lambda a: np.place(a, MASK, np.array([0.5])), MASK.astype(int)),
    "putmask by another mask": (ValueError, lambda a: np.putmask(a, MASK[0], 1), X),
    "fill_diagonal of one axis": (ValueError, lambda a: np.fill_diagonal(a, 1), X[0]),
    "fill_diagonal of several sizes": (ValueError, lambda a: np.fill_diagonal(a, 1), np.zeros((2, 2, 3))),
    "fill by several": (ValueError, lambda a: a.fill([1, 2]), X),
    "fill by a large number": (OverflowError, lambda a: a.fill(300), MANY.astype("u1")),
    "fill by a complex number": (TypeError, lambda a: a.fill(1j), X),
    "put, the method, beyond the end": (IndexError, lambda a: a.put([99], 1), X),
    "partition beyond the end": (ValueError, lambda a: a.partition(13, 0), X),
    "partition of no axis": (TypeError, lambda a: a.partition(3, None), X),
    "partition of a number": (np.exceptions.AxisError, lambda a: a.partition(0), np.array(2.0)),
    "out of another type": (TypeError, lambda a: np.add(X[:, 0], 1, out=a), np.zeros(13, int)),
    "out of another shape": (ValueError, lambda a: np.add(X, 1, out=a), np.zeros(6)),
    "out of a sum of another shape": (ValueError, lambda a: np.sum(a, 0, out=a), X),
    "out by a wide mask": (ValueError, lambda a: np.add(a, 1, out=a, where=np.ones((2, 6), bool)), X[0]),
    "out and dtype": (TypeError, lambda a: np.concatenate([a], dtype=float, out=a), X),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_refuses_is_refused_and_changes_nothing(put, name):
    error, write, x = REFUSED[name]
    with pytest.raises(error):
        write(x.copy())
    h = put(x)
    with pytest.raises(error):
        write(h)
    np.testing.assert_array_equal(h.get(), x)


def test_a_traced_function_changes_its_arrays(put, server):
    def changed(x, mask):
        y = x.copy()
        np.copyto(y, 2, where=mask)
        np.put(y, [0, 9], [1, 2])
        np.place(y, mask, [3, 4, 5])
        np.fill_diagonal(y, 7)
        np.add.at(y, (0, [0, 0]), 1)
        np.multiply(y, 2, out=y, where=y > 5)
        z = x.copy()
        z.fill(3)
        z.put([1], [4])
        z.partition(range(6))
        return y + z

    with sc.connect(server.address) as client:
        h, mask = (client.put(x, mesh=MESH) for x in (X, MASK))
        np.testing.assert_allclose(client.jit(changed)(h, mask).get(), changed(X, MASK))

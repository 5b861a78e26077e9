"""Methods of ufuncs: reduce, accumulate, reduceat, outer and at, of arrays on the mesh, which equal NumPy's."""

import warnings

import numpy as np
import pytest

import shardcall as sc

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(13, 6))
X[3, 2] = np.nan
I = RANDOM.integers(1, 9, (13, 6), "i4")  # noqa: E741
MASK = RANDOM.random((13, 6)) < 0.6
KEYS = np.array([0, 4, 4, 12, 4, 0])
MESH = sc.Mesh(x=8)


@pytest.fixture(scope="module")
def put(server):
    """Puts arrays on the mesh, for a client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield lambda x: client.put(x, mesh=MESH)


def test_indices_and_operands_on_the_mesh(put):
    h, x = put(X), X.copy()
    np.add.at(h, put(KEYS), put(X[0]))
    np.add.at(x, KEYS, X[0])
    np.testing.assert_allclose(h.get(), x, rtol=1e-12)
    for call in (lambda: np.negative.at(h, put(KEYS)), lambda: np.add.reduceat(h, put(np.array([0, 3])))):
        with pytest.raises(TypeError, match="implicit_get='error'"):
            call()


REFUSED = {
    "reduce without an identity": (ValueError, lambda x: np.subtract.reduce(x[:0])),
    "reduce two axes": (ValueError, lambda x: np.subtract.reduce(x, axis=None)),
    "reduce where": (ValueError, lambda x: np.subtract.reduce(x, where=MASK)),
    "reduce by no bool": (TypeError, np.less.reduce),
    "reduce by a function of one operand": (ValueError, np.sin.reduce),
    "reduce by a function of two results": (ValueError, np.divmod.reduce),
    "reduce matrices": (RuntimeError, np.matmul.reduce),
    "reduce to no array": (TypeError, lambda x: np.add.reduce(x, 0, None, "invalid")),
    "sum to no array": (TypeError, lambda x: np.sum(x, out=3.5)),
    "reduce no axis": (np.exceptions.AxisError, lambda x: np.hypot.reduce(x, 5)),
    "accumulate no axis": (np.exceptions.AxisError, lambda x: np.maximum.accumulate(x, 5)),
    "accumulate two axes": (ValueError, lambda x: np.add.accumulate(x, axis=None)),
    "accumulate a number": (TypeError, lambda x: np.add.accumulate(x[0, 0])),
    "reduceat beyond the end": (IndexError, lambda x: np.add.reduceat(x, [0, 13])),
    "reduceat before the first": (IndexError, lambda x: np.add.reduceat(x, [-1])),
    "reduceat pairs": (ValueError, lambda x: np.add.reduceat(x, [[0, 1]])),
    "outer of one operand": (ValueError, lambda x: np.sin.outer(x, x)),
    "at beyond the end": (IndexError, lambda x: np.add.at(x, [13], 1)),
    "at floats": (IndexError, lambda x: np.add.at(x, [0.5], 1)),
    "at of another shape": (ValueError, lambda x: np.add.at(x, [0, 1], np.ones((3, 1)))),
    "at without an operand": (ValueError, lambda x: np.add.at(x, [0])),
    "at with two operands": (ValueError, lambda x: np.negative.at(x, [0], 1)),
    "at of two results": (ValueError, lambda x: np.modf.at(x, [0])),
    "at of matrices": (TypeError, lambda x: np.matmul.at(x, [0], 1)),
    "at a number": (TypeError, lambda x: np.add.at(x[0, 0], 0, 1)),
    "where by integers": (TypeError, lambda x: np.add(x, 1, where=np.ones(6, int))),
}


def test_results_for_another_class_are_left_to_it(put):
    class Target:
        def __array_ufunc__(self, ufunc, method, *inputs, out):
            return ufunc.__name__, [target is self for target in out]

    h, target = put(X), Target()
    assert np.sin(h, target) == ("sin", [True])
    assert np.modf(h, None, target) == ("modf", [False, True])
    assert np.add.reduce(h, out=target) == ("add", [True])


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_refuses_is_refused(put, name):
    error, call = REFUSED[name]
    for x in (X.copy(), put(X)):
        with pytest.raises(error), warnings.catch_warnings(action="ignore"):
            call(x)


def test_what_has_no_update_is_refused_by_name(put):
    h = put(I)
    with pytest.raises(TypeError, match=r"numpy\.bitwise_or\.at with equal indices"):
        np.bitwise_or.at(h, np.zeros(100, int), 1)
    with pytest.raises(TypeError, match=r"numpy\.hypot\.reduceat of 100 parts"):
        np.hypot.reduceat(put(X), np.arange(100) % 2)


def test_methods_in_a_traced_function(put, server):
    def computed(x):
        y = np.maximum.accumulate(x, 1)
        np.subtract.at(y, KEYS, 1)
        parts = np.add.reduceat(y, [0, 5, 2])
        return np.divide.reduce(y, 1), parts, np.multiply.outer(parts[0], parts[1]), np.gcd.reduce(x)

    with sc.connect(server.address) as client:
        results = client.jit(computed)(client.put(I, mesh=MESH))
        for ours, expected in zip(results, computed(I), strict=True):
            np.testing.assert_allclose(ours.get(), expected, rtol=1e-12)

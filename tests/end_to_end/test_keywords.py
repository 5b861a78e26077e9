"""Keywords and shapes that functions of NumPy take, of arrays on the mesh: results equal NumPy's."""

import warnings

import numpy as np
import pytest

import shardcall as sc

RANDOM = np.random.default_rng(9)
X = RANDOM.normal(size=(13, 6))
WEIGHTS = RANDOM.integers(0, 4, (13, 6)).astype(float) + np.eye(13, 6)
WEIGHTS[0] += 1
MESH = sc.Mesh(x=8)
CDF = {"method": "inverted_cdf"}


@pytest.fixture(scope="module")
def put(server):
    with sc.connect(server.address, implicit_get="error") as client:
        yield lambda x: client.put(x, mesh=MESH)


REFUSED = {
    "var with both names": (ValueError, lambda x: np.var(x, ddof=1, correction=1)),
    "quantile of three axes": (ValueError, lambda x: np.quantile(x, [[[0.5]]])),
    "weights of another method": (ValueError, lambda x: np.quantile(x, 0.5, weights=WEIGHTS)),
    "weights without an axis": (TypeError, lambda x: np.quantile(x, 0.5, weights=WEIGHTS[0], **CDF)),
    "weights of another shape": (ValueError, lambda x: np.quantile(x, 0.5, axis=0, weights=WEIGHTS[0], **CDF)),
    "negative weights": (ValueError, lambda x: np.quantile(x, 0.5, weights=-WEIGHTS, **CDF)),
    "weights of zero": (ValueError, lambda x: np.quantile(x, 0.5, weights=WEIGHTS * 0, **CDF)),
    "take of another mode": (ValueError, lambda x: np.take(x, [0], mode="x")),
    "take beyond the end": (IndexError, lambda x: np.take(x, [99]).sum().item()),
    "take clipped, of nothing": (IndexError, lambda x: np.take(x[:0], [0], mode="clip")),
    "take_along_axis of pairs": (ValueError, lambda x: np.take_along_axis(x, np.array([[0, 1]]), None)),
    "dot of other sizes": (ValueError, lambda x: np.dot(x, np.ones((2, 5, 3)))),
    "cross of a number": (ValueError, lambda x: np.cross(x, 3)),
    "clip by both names": (ValueError, lambda x: np.clip(x, 0, 1, max=2)),
    "reduce into another shape": (ValueError, lambda x: np.add.reduce(x, out=np.empty(x.shape))),
    "reduce nothing from nothing": (ValueError, lambda x: np.add.reduce(x[:0], initial=None)),
    "digitize by complex edges": (TypeError, lambda x: np.digitize(x, [1j])),
    "histogramdd of half a bin": (ValueError, lambda x: np.histogramdd(x.reshape(-1, 2), [2, 0.5])),
    "nanmean of integers": (TypeError, lambda x: np.nanmean(x, dtype=int)),
    "nanargmax of one NaN": (ValueError, lambda x: np.nanargmax(x.reshape(-1)[0] * np.nan)),
    "unique along half an axis": (TypeError, lambda x: np.unique(x.reshape(-1), axis=0.5)),
    "cross of four": (ValueError, lambda x: np.cross(x[:, :4], x[:, :4])),
    "concatenate by a rule": (TypeError, lambda x: np.concatenate([x, x], dtype=int)),
    "stack by a rule": (TypeError, lambda x: np.stack([x, x], dtype="f4", casting="safe")),
    "trapezoid of another shape": (ValueError, lambda x: np.trapezoid(x, np.arange(5))),
    "pinv with both": (ValueError, lambda x: np.linalg.pinv(x, 0.1, rtol=0.1)),
    "histogram of unordered edges": (ValueError, lambda x: np.histogram(x, np.array([2.0, 1.0, 3.0]))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_refuses_is_refused(put, name):
    error, call = REFUSED[name]
    for x in (X, put(X)):
        with pytest.raises(error), warnings.catch_warnings(action="ignore"):
            call(x)


NAMED = {
    "a text": (TypeError, r"operand 2 of numpy\.add is of the type str; give an array", lambda x: np.add(x, "a")),
    "None beside an array": (TypeError, "operand 1 of numpy.add is of the type NoneType", lambda x: np.add(None, x)),
    "a text of indices": (TypeError, "indices is of str", lambda x: np.take(x, "a")),
    "no index": (TypeError, "indices is of object; give integers", lambda x: np.take(x, None)),
    "a text of indices to put": (TypeError, "ind is of str", lambda x: np.put(x, "a", 1)),
    "no repeats": (TypeError, "repeats is of object", lambda x: np.repeat(x, None)),
    "no sections": (TypeError, "indices_or_sections is None; give an integer", lambda x: np.split(x, None)),
    "0 sections": (ValueError, "0 parts; give 1 or more", lambda x: np.split(x, 0)),
    "an axis beyond the last": (IndexError, "axis 3 is out of bounds", lambda x: np.array_split(x, 2, axis=3)),
    "padding of another axis": (IndexError, "axis 5 is out of bounds", lambda x: np.pad(x, {5: 1})),
    "a text of integrals": (TypeError, "m is 'a'; give an integer", lambda x: np.polyint(x[0], m="a")),
    "half a column": (TypeError, r"N is 1\.5; give an integer", lambda x: np.vander(x[0], N=1.5)),
    "half a power": (TypeError, r"n is 1\.5; give an integer", lambda x: np.linalg.matrix_power(x[:6], 1.5)),
    "a text of axes": (ValueError, "axes='a'; give an integer, or two", lambda x: np.tensordot(x, x, axes="a")),
    "a text of quarters": (TypeError, "k is 'a'; give an integer", lambda x: np.rot90(x, "a")),
    "no function": (TypeError, "func1d is of NoneType; give a function", lambda x: np.apply_along_axis(None, 0, x)),
    "no type": (TypeError, "dtype is 'nope', which names no element type", lambda x: np.sum(x, dtype="nope")),
    "no elements to test for": (TypeError, "test_elements has element type object", lambda x: np.isin(x, None)),
    "a text of edges": (TypeError, "bins has element type <U1", lambda x: np.digitize(x, "a")),
    "a text of numbers": (TypeError, "v has element type <U1", lambda x: np.searchsorted(x[0], "a")),
    "a text of a stop": (TypeError, "stop has element type <U1", lambda x: np.linspace(x, "a")),
    "a text of a start": (TypeError, "start has element type <U1", lambda x: np.geomspace("a", x)),
    "a text of a base": (TypeError, "base has element type <U1", lambda x: np.logspace(x, 2, base="a")),
    "no percentage": (TypeError, "q is of object; give real", lambda x: np.percentile(x, None)),
    "a text of an axis": (TypeError, "source is 'a'; give an integer", lambda x: np.moveaxis(x, "a", 0)),
    "a text of an axis to leave out": (TypeError, "axis is 'a'; give an integer", lambda x: np.unstack(x, axis="a")),
    "a text of an axis of numbers": (TypeError, "axis is 'a'; give", lambda x: np.linspace(x, 1, axis="a")),
    "no position of an axis": (TypeError, "destination is None", lambda x: np.moveaxis(x, 0, None)),
    "no axis to exchange": (TypeError, "axis2 is None; give an integer", lambda x: np.swapaxes(x, 0, None)),
    "no axes": (TypeError, "axes=None; give an integer, or two", lambda x: np.tensordot(x, x, axes=None)),
    "a text of an edge": (TypeError, r"range is \[1, 'a'\]; give two real", lambda x: np.histogram(x, range=(1, "a"))),
    "one edge of two": (TypeError, "range is 1; give two real numbers", lambda x: np.histogram(x, range=1)),
    "edges of the first axis": (
        TypeError,
        r"range is \[0, None\]; give two",
        lambda x: np.histogram2d(x[0], x[0], range=[(0, None), (0, 1)]),
    ),
    "a real deviation of complex numbers": (
        TypeError,
        "loses the imaginary part",
        lambda x: np.var(x * 1j, dtype="f4"),
    ),
    "no mean": (ZeroDivisionError, r"no mean along \(1,\)", lambda x: np.average(x[:0], axis=1)),
    "a share of each matrix": (ValueError, r"rcond is of shape \(1,\)", lambda x: np.linalg.pinv(x, rcond=[0.5])),
}


@pytest.mark.parametrize("name", NAMED)
def test_errors_name_the_argument(put, name):
    error, message, call = NAMED[name]
    with pytest.raises(error, match=message):
        call(put(X))


class Answering:
    """An object with ufuncs of its own."""

    def __array_ufunc__(self, *_, **__):
        return "answered"


def test_objects_with_ufuncs_answer_beside_others(put):
    x, answering = put(X), Answering()
    assert np.add(x, answering) == np.add(x, "a", out=answering) == np.add(x, 1, out=answering) == "answered"


TAKING = {
    "take": lambda x, out: np.take(x, [0, 2], out=out),
    "take clipped": lambda x, out: np.take(x, [0, 2], out=out, mode="clip"),
    "compress": lambda x, out: np.compress([True, False, True], x, out=out),
    "choose": lambda x, out: np.choose([0, 1], [x[:2], x[1:]], out=out),
}


@pytest.mark.parametrize("name", TAKING)
@pytest.mark.parametrize(("of_x", "of_out"), [("i8", "f8"), ("i8", "i4"), ("f8", "i8"), ("f8", "f4")])
def test_targets_of_elements_are_of_numpys_types(put, name, of_x, of_out):
    x, here, target = np.array([1, 2, 3], of_x), np.zeros(2, of_out), put(np.zeros(2, of_out))
    try:
        expected = TAKING[name](x, here)
    except TypeError:
        with pytest.raises(TypeError, match=f"out is of {target.dtype} and the result of"):
            TAKING[name](put(x), target)
    except DeprecationWarning:  # from NumPy 2.5 on
        with pytest.warns(DeprecationWarning, match="Implicit casting"):
            TAKING[name](put(x), target)
    else:
        assert TAKING[name](put(x), target) is target
        np.testing.assert_array_equal(target.get(), expected)


def test_grids_are_tuples(put):
    assert isinstance(np.meshgrid(put(X[0]), put(X[1])), tuple)


def test_no_arrays_are_joined(server):
    with sc.connect(server.address) as client, pytest.raises(ValueError, match="array"):
        client.xp.hstack([])

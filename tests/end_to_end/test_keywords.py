"""Keywords and shapes that functions of NumPy take, of arrays on the mesh: results equal NumPy's."""

import warnings

import numpy as np
import pytest
from rows import one_in

import shardcall as sc

RANDOM = np.random.default_rng(9)
X = RANDOM.normal(size=(13, 6))
HOLES = np.where(RANDOM.random((13, 6)) < 0.2, np.nan, X)
I = RANDOM.integers(-9, 9, (13, 6))  # noqa: E741
C = (X[:, :2] + 1j * RANDOM.integers(-1, 2, (13, 2))).astype("c16")
ROUND = np.round(C.real) + 1j * np.round(C.imag)
MASK = RANDOM.random((13, 6)) < 0.7
WEIGHTS = RANDOM.integers(0, 4, (13, 6)).astype(float) + np.eye(13, 6)
WEIGHTS[0] += 1
MESH = sc.Mesh(x=8)
CDF = {"method": "inverted_cdf"}


@pytest.fixture(scope="module")
def put(server):
    with sc.connect(server.address, implicit_get="error") as client:
        yield lambda x: client.put(x, mesh=MESH)


INFINITE = np.array([2.5, -1.25, np.inf, np.nan, 0.0])
PARTS = np.array([complex(3, np.nan), complex(np.inf, 1.234), complex(1.26, -np.inf)])
CASES = {
    "var in float64": (lambda x: np.var(x, dtype="f8"), X.astype("f4")),
    "var of complex numbers": (lambda x: np.var(x, 0, dtype="c16", ddof=1), C.astype("c8")),
    "std where": (lambda x: np.std(x, 1, where=MASK, correction=1), X),
    "var about a mean": (lambda x: np.var(x, 0, mean=X.mean(0), where=MASK, ddof=1), X),
    "std about a number": (lambda x: np.std(x, mean=1.5), I),
    "nanvar with a correction": (lambda x: np.nanvar(x, 0, correction=1), HOLES),
    "nanstd about a mean": (lambda x: np.nanstd(x, 0, mean=np.nanmean(HOLES, 0)), HOLES),
    "nanmean where": (lambda x: np.nanmean(x, 0, where=MASK), HOLES),
    "mean in integers": (lambda x: np.mean(x, 0, dtype=int), X * 9),
    "mean in bool": (lambda x: np.mean(x, 1, dtype=bool), I),
    "mean in float32": (lambda x: np.mean(x, 0, dtype="f4"), I),
    "quantile, two axes": (lambda x: np.quantile(x, [[0.1, 0.2], [0.5, 1]], axis=0), X),
    "percentile, two axes": (lambda x: np.percentile(x, [[10, 20]]), X),
    "quantile by weights": (lambda x: np.quantile(x, [0, 0.3, 1], axis=0, weights=WEIGHTS, **CDF), X),
    "quantile by weights of rows": (lambda x: np.quantile(x, 0.4, axis=0, weights=np.arange(13), **CDF), HOLES),
    "percentile by weights": (lambda x: np.percentile(x, [[30, 70]], weights=WEIGHTS, **CDF), I),
    "nanquantile by weights": (lambda x: np.nanquantile(x, [0.2, 1], axis=0, weights=WEIGHTS, **CDF), HOLES),
    "quantile by weights, kept": (lambda x: np.quantile(x, 0.5, axis=1, weights=WEIGHTS, keepdims=True, **CDF), X),
    "take wrapped": (lambda x: np.take(x, [5, -100, 99], 0, mode="wrap"), X),
    "take clipped": (lambda x: np.take(x, [5, -100, 99], mode="clip"), X),
    "take clipped by the method": (lambda x: x.take([[5, 99]], 1, mode="clip"), X),
    "take_along_axis, flat": (lambda x: np.take_along_axis(x, np.array([3, -1]), None), X),
    "dot of three axes": (lambda x: np.dot(x, RANDOM_DOT), X),
    "dot of a vector and three": (lambda x: np.dot(x[0], RANDOM_DOT), X),
    "dot of three and two": (lambda x: np.dot(RANDOM_DOT.transpose(0, 2, 1), x.T), X),
    "cross of two": (lambda x: np.cross(x[:, :2], x[:, 2:4]), X),
    "cross of two and three": (lambda x: np.cross(x[:, :2], x[:, 2:5]), X),
    "cross along an axis": (lambda x: np.cross(x[:3], x[3:5], axis=0), I),
    "cross of infinities": (lambda x: np.cross(x[1:3], x[:3]), INFINITE),
    "cross with a vector of two": (lambda x: np.cross(x[:3], x[1:3]), INFINITE),
    "nan_to_num of complex parts": (
        lambda x: np.nan_to_num(x, nan=np.nan, posinf=np.inf),
        PARTS,
    ),
    "round of complex infinities": (lambda x: np.round(x, 1), PARTS),
    "round to 400 decimals": (lambda x: np.round(x, 400), INFINITE),
    "round of large complex numbers": (lambda x: np.round(x * 1e307, -1), C),
    "differences of large numbers": (lambda x: np.subtract.reduce(x, 0), np.full((3, 2), 1e308)),
    "concatenate in float32": (lambda x: np.concatenate([x, [[1] * 6]], dtype="f4"), X),
    "concatenate in integers": (lambda x: np.concatenate([x, x], 1, dtype="i4", casting="unsafe"), X),
    "stack in complex numbers": (lambda x: np.stack([x, x], 1, dtype=complex), X),
    "hstack in float32": (lambda x: np.hstack([x, x[:, :1]], dtype="f4"), I),
    "vstack in int8": (lambda x: np.vstack([x, x[0]], dtype="i1"), I),
    "trapezoid of fewer axes": (lambda x: np.trapezoid(x.reshape(13, 2, 3), np.arange(6.0).reshape(2, 3)), X),
    "trapezoid along the first axis": (lambda x: np.trapezoid(x, x, axis=0), X),
    "searchsorted, complex": (lambda x: np.searchsorted(np.sort(x[:, 0]), x), ROUND),
    "searchsorted, complex, right": (lambda x: np.searchsorted(np.sort(x[:, 0]), x.real, "right"), ROUND),
    "rot90 by half a quarter": (lambda x: np.rot90(x, 1.5), X),
    "histogram of edges with a range": (lambda x: np.histogram(x, [0.0, 1, 2], (1, "a")), X),
    "pinv by rcond": (lambda x: np.linalg.pinv(x @ x.T, 1e-6), X),
    "pinv by rtol": (lambda x: np.linalg.pinv(x @ x.T, rtol=1e-8), X),
    "pinv by the type": (lambda x: np.linalg.pinv(x, rtol=None), X),
    "histogram": (lambda x: np.histogram(x, np.arange(13.0)), X * 4),
    "histogram, a number": (lambda x: np.histogram(x, 5, (0, 4)), X),
}
RANDOM_DOT = RANDOM.normal(size=(3, 6, 2))


@pytest.mark.parametrize("name", one_in(2, CASES))
def test_results_are_numpys(put, name):
    function, x = CASES[name]
    with warnings.catch_warnings(action="ignore"):
        expected, results = function(x), function(put(x))
    pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
    for ours, numpys in pairs:
        values = ours if isinstance(ours, np.ndarray) else ours.get()
        assert (values.dtype, values.shape) == (numpys.dtype, numpys.shape)
        single = values.dtype.itemsize < 8
        np.testing.assert_allclose(values, numpys, rtol=1e-6 if single else 1e-9, atol=1e-6 if single else 1e-12)


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
    else:
        assert TAKING[name](put(x), target) is target
        np.testing.assert_array_equal(target.get(), expected)


def test_grids_are_tuples(put):
    assert isinstance(np.meshgrid(put(X[0]), put(X[1])), tuple)


FACTORS = np.arange(1, 31)
BYTES = np.array([200, 100, 7], np.uint8)
TARGETS = {
    "prod": (np.prod, FACTORS, "f8"),
    "sum of 64 bits": (np.sum, np.full(4, 2**62), "f8"),
    "sum of bool to bytes": (np.sum, MASK[0], "i1"),
    "cumprod": (np.cumprod, FACTORS, "f8"),
    "nanprod": (np.nanprod, FACTORS, "f4"),
    "cumulative_prod": (np.cumulative_prod, FACTORS, "f8"),
    "cumulative_sum to bytes": (np.cumulative_sum, X[0], "i1"),
    "trace": (np.trace, np.full((2, 2), 2**62), "f8"),
    "add.reduce of float16": (np.add.reduce, np.array([2048, 1], "f2"), "f4"),
    "add.accumulate": (np.add.accumulate, X[0].astype("f4"), "f8"),
    "subtract.reduce": (np.subtract.reduce, BYTES, "i8"),
    "subtract.accumulate": (np.subtract.accumulate, BYTES, "i8"),
    "left_shift.reduce": (np.left_shift.reduce, np.array([1, 10], "u1"), "i8"),
    "power.reduce": (np.power.reduce, np.array([10, 30]), "f8"),
    "multiply.reduceat": (lambda x, out=None: np.multiply.reduceat(x, [0, 25], out=out), FACTORS, "f8"),
    "logical_and.reduce": (np.logical_and.reduce, FACTORS, "i8"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_the_type_of_out_is_that_of_the_computation(client, name):
    function, x, dtype = TARGETS[name]
    h = client.put(x, mesh=MESH)
    ours, numpys = (np.zeros(function(x).shape, dtype) for _ in range(2))
    assert function(h, out=ours) is ours
    np.testing.assert_allclose(ours, function(x, out=numpys), rtol=1e-6)
    on_mesh = client.put(np.zeros_like(ours))
    function(h, out=on_mesh)
    np.testing.assert_array_equal(on_mesh.get(), ours)


def test_operands_on_the_mesh(put):
    h, weights = put(X), put(WEIGHTS)
    np.testing.assert_allclose(
        np.quantile(h, 0.3, axis=0, weights=weights, **CDF).get(), np.quantile(X, 0.3, axis=0, weights=WEIGHTS, **CDF)
    )
    at = np.array([[5, -100], [99, 3]])
    np.testing.assert_array_equal(np.take(h, put(at), mode="wrap").get(), np.take(X, at, mode="wrap"))
    np.testing.assert_array_equal(np.take(h, put(at), mode="clip").get(), np.take(X, at, mode="clip"))


def test_numbers_of_even_logarithms(put, server):
    with sc.connect(server.address) as client:
        for how in (
            {"start": [0, 1], "stop": [2, 3], "num": 3, "axis": 1},
            {"start": 0, "stop": 2, "num": 3, "base": [2, 10], "axis": -1},
            {"start": [0, 1], "stop": 2, "num": 4, "base": [[2], [3]]},
        ):
            np.testing.assert_allclose(client.xp.logspace(**how).get(), np.logspace(**how), rtol=1e-13)
        with pytest.raises(np.exceptions.AxisError):
            client.xp.logspace([0, 1], 2, axis=5)


def test_no_arrays_are_joined(server):
    with sc.connect(server.address) as client, pytest.raises(ValueError, match="array"):
        client.xp.hstack([])


def test_keywords_in_a_traced_function(put, server):
    def computed(x):
        return (
            np.quantile(x, 0.3, axis=0, weights=WEIGHTS, **CDF),
            np.searchsorted(np.sort(x[:, 0] * 1j), x * 1j),
            np.var(x, mean=x.mean(0, keepdims=True)),
            np.take(x, [99, -5], 0, mode="wrap"),
        )

    with sc.connect(server.address) as client:
        results = client.jit(computed)(client.put(X, mesh=MESH))
        for ours, expected in zip(results, computed(X), strict=True):
            np.testing.assert_allclose(ours.get(), expected, rtol=1e-12)

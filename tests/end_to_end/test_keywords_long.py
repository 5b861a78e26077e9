"""The tests of `test_keywords.py` that take long."""

import warnings

import numpy as np
import pytest
from end_to_end.test_keywords import CDF, MESH, RANDOM, WEIGHTS, X
from rows import one_in

import shardcall as sc

pytestmark = pytest.mark.long

HOLES = np.where(RANDOM.random((13, 6)) < 0.2, np.nan, X)


I = RANDOM.integers(-9, 9, (13, 6))  # noqa: E741


C = (X[:, :2] + 1j * RANDOM.integers(-1, 2, (13, 2))).astype("c16")


ROUND = np.round(C.real) + 1j * np.round(C.imag)


MASK = RANDOM.random((13, 6)) < 0.7


WEIGHTS[0] += 1


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

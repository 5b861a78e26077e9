"""NumPy's functions of the bits and the parts of numbers on the mesh equal NumPy's."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, check, same

import shardcall as sc

RANDOM = np.random.default_rng(7)
I, X = RANDOM.integers(-5, 6, (13, 6)), RANDOM.normal(size=(13, 6))  # noqa: E741
BYTES = RANDOM.integers(0, 256, (13, 6)).astype(np.uint8)
C = X[:, 0] + 1j * X[:, 1]
SPECIAL = np.array([0, -0.0, np.inf, np.nan, 1e-45, 3e38, -7], np.float32)
SHORT = {
    "packbits": (lambda x: np.packbits(x, axis=0, bitorder="little"), I),
    "unpackbits": (lambda x: np.unpackbits(x, axis=1, count=-3), BYTES),
    "sort_complex": (np.sort_complex, I.astype(np.int8)),
    "real_if_close": (np.real_if_close, C.real + 1e-15j),
    "ldexp": (lambda x: np.ldexp(x, I), X),
    "frexp": (np.frexp, SPECIAL),
    "iscomplex": (np.iscomplex, np.array([1, 2j])),
}
LONG = {
    "packbits, flattened": (np.packbits, I),
    "packbits of bool": (lambda x: np.packbits(x, axis=-1), I > 0),
    "packbits of nothing": (np.packbits, I[:0]),
    "packbits of a number": (np.packbits, np.array(3)),
    "packbits of 4,096": (np.packbits, np.arange(4096) % 3 == 0),
    "unpackbits, flattened": (lambda x: np.unpackbits(x, bitorder="little"), BYTES),
    "unpackbits, more": (lambda x: np.unpackbits(x, axis=0, count=120), BYTES),
    "unpackbits of nothing": (lambda x: np.unpackbits(x, axis=0), BYTES[:0]),
    "sort_complex of complex": (np.sort_complex, C),
    "sort_complex of float32": (np.sort_complex, X.astype("f")),
    "real_if_close, not": (np.real_if_close, C),
    "real_if_close, a bound": (lambda x: np.real_if_close(x, tol=0.5), C.real + 0.4j),
    "real_if_close of reals": (np.real_if_close, X),
    "ldexp of a number": (lambda x: np.ldexp(0.7, x), I * 200),
    "ldexp of float16": (lambda x: np.ldexp(x, np.int32(-3)), X.astype(np.float16)),
    "frexp of integers": (np.frexp, I.astype(np.int8)),
    "frexp of small numbers": (np.frexp, X * 1e-300),
    "isreal": (np.isreal, np.where(X[:, 0] > 0, C, 1)),
    "isreal of reals": (np.isreal, X),
    "iscomplex of reals": (np.iscomplex, I),
}


@pytest.mark.parametrize(
    ("function", "x"),
    [*SHORT.values(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*SHORT, *LONG],
)
def test_functions_of_elements_are_numpys(strict_client, function, x):
    check(strict_client, function, x)


def test_elements_of_traced_functions(strict_client):
    def function(x):
        return np.frexp(x), np.ldexp(x, 3), np.isreal(x), np.packbits(x > 0, axis=1), np.unpackbits(np.packbits(x > 0))

    same(strict_client.jit(function)(strict_client.put(X, mesh=MESH)), function(X))
    with pytest.raises(sc.TracingError):
        strict_client.jit(np.real_if_close).trace(C)


def test_wrong_arguments_are_refused(strict_client):
    h = strict_client.put(X, mesh=MESH)
    for call, error in (
        (np.packbits, TypeError),
        (lambda x: np.packbits(x > 0, bitorder="x"), ValueError),
        (lambda x: np.packbits(x > 0, axis=2), np.exceptions.AxisError),
        (np.unpackbits, TypeError),
        (lambda x: np.unpackbits(x.astype(np.uint8), count=-1000), ValueError),
        (lambda x: np.ldexp(x, 1.5), TypeError),
        (lambda x: np.frexp(x * 1j), TypeError),
    ):
        for x in (X, h):
            with pytest.raises(error):
                call(x)

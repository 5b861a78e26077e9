"""NumPy's functions of the bits and the parts of numbers on the mesh equal NumPy's."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, same

import shardcall as sc

RANDOM = np.random.default_rng(7)
I, X = RANDOM.integers(-5, 6, (13, 6)), RANDOM.normal(size=(13, 6))  # noqa: E741
C = X[:, 0] + 1j * X[:, 1]


def test_elements_of_traced_functions(strict_client):
    def function(x):
        parts = np.spacing(x), np.i0(x), np.bitwise_count(np.sign(x).astype(int) * 7)
        return (
            parts,
            np.frexp(x),
            np.ldexp(x, 3),
            np.isreal(x),
            np.packbits(x > 0, axis=1),
            np.unpackbits(np.packbits(x > 0)),
        )

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
        (lambda x: np.spacing(x * 1j), TypeError),
        (lambda x: np.i0(x * 1j), TypeError),
        (np.bitwise_count, TypeError),
    ):
        for x in (X, h):
            with pytest.raises(error):
                call(x)

"""Functions of arrays on the mesh beside NumPy's: types, shapes and values of results, copies, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import shardcall as sc

MESH = sc.Mesh(x=8)
ERRORS = (
    *(np.exceptions.AxisError, np.linalg.LinAlgError, IndexError, ZeroDivisionError, OverflowError),
    *(TypeError, ValueError, RuntimeError),
)
"""The classes of NumPy's errors, special ones first."""

FAILURES = (AssertionError, AttributeError, sc.ShardcallError, *ERRORS)

U8 = np.arange(8, dtype=np.uint8) * 30
X = np.arange(8.0)
Z = np.float32(3)

Case = Callable[[Any, Any], Any]
"""An expression of the functions, NumPy or ``client.xp``, and an array."""


def put(client: sc.Client, x: Any) -> sc.RemoteArray:
    array = np.asarray(x)
    return client.put(array, mesh=MESH, spec=sc.P("x") if array.ndim else sc.P())


def same(actual: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            same(one, other)
        return
    here = actual.get() if isinstance(actual, sc.RemoteArray) else np.asarray(actual)
    # Not bit for bit: what is computed in floats rounds in another order.
    tolerance = 1e-3 if here.dtype == np.float16 else 1e-6
    np.testing.assert_allclose(here, np.asarray(expected), rtol=tolerance, atol=tolerance, strict=True)


def check(client: sc.Client, x: Any, cases: Sequence[Case]) -> None:
    """Compares with NumPy the type, shape and values of results, or the classes of errors; names all that differ."""
    wrong = []
    for number, case in enumerate(cases):
        try:
            with np.errstate(all="ignore"):
                expected = case(np, np.array(x))
        except ERRORS as error:
            error_class = next(candidate for candidate in ERRORS if isinstance(error, candidate))
            try:
                result = case(client.xp, put(client, x))
                wrong.append(f"case {number}: {result} and no {error_class.__name__}")
            except error_class:
                continue
            except FAILURES as other:
                wrong.append(f"case {number}: {other!r} and no {error_class.__name__}")
            continue
        try:
            same(case(client.xp, put(client, x)), expected)
        except FAILURES as error:
            wrong.append(f"case {number}: {error!r}")
    assert not wrong, "\n".join(wrong)


def test_requested_types(client):
    check(
        client,
        U8,
        (
            lambda xp, h: xp.asarray(h, dtype=np.float64),
            lambda xp, h: xp.array(h, dtype=float),
            lambda xp, h: xp.full(8, h, dtype=np.float64),
            lambda xp, h: xp.full_like(h, h, dtype=np.float64),
            lambda _, h: np.multiply(h, h, dtype=float),
            lambda _, h: np.sin(h, dtype=np.float64),
            lambda _, h: np.add(h, 1, dtype="f4"),
            lambda _, h: np.add(h, h.astype("f8"), casting="no"),
        ),
    )
    with pytest.raises(sc.OperandTypeError):  # a float64 equals None in NumPy
        client.call("arange", np.int32(0), np.float64(1), size=3)


def test_a_bucketed_array_keeps_its_values(client):
    h = put(client, X)
    bucketed = client.bucket(h)
    h[...] = 5
    np.testing.assert_array_equal(bucketed.get(), X)


def test_a_copy_in_a_traced_function_is_one(client):
    def changed(h: Any) -> Any:
        array = client.xp.array(h)
        array[0] = 7
        return h, array

    same(client.jit(changed)(put(client, X)), (X, [7.0, *X[1:]]))


def test_arrays_without_axes_that_are_padded(client):
    modes = ("constant", "edge", "reflect", "symmetric", "wrap")
    check(client, Z, [lambda _, z, mode=mode: np.pad(z, 1, mode=mode) for mode in modes])
    check(client, Z, [lambda _, z: np.pad(z, []), lambda _, z: np.convolve(z, z), lambda _, z: np.tensordot(z, z)])


def test_traced_functions_of_sorts_and_arrays_without_axes(client):
    def functions(h: Any, z: Any) -> Any:
        return (
            np.lexsort((h, -h)),
            np.lexsort((h, h > 3)),
            np.pad(z, 0, mode="edge"),
            np.argsort(z),
            np.cumulative_sum(z, axis=0, include_initial=True),
        )

    h = X % 3
    same(client.jit(functions)(put(client, h), put(client, Z)), functions(h, np.asarray(Z)))
    same(client.call("lexsort", np.stack([h, -h]), axis=-1).array, np.lexsort((h, -h)))


def test_python_numbers_of_traced_functions(client):
    def functions(h: Any, n: Any) -> Any:
        return (
            np.dot(h, n),
            np.select([h > 3], [h], n),
            np.clip(h, n, 5),
            np.isclose(h, n),
            np.heaviside(h, n),
            np.heaviside(n, h),
        )

    traced = client.jit(functions)
    for number in (2, 2.5):
        same(traced(put(client, U8), number), functions(U8, number))

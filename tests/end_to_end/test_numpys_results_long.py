"""The tests of `test_numpys_results.py` that take long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from end_to_end.test_numpys_results import U8, Case, X, Z, check

pytestmark = pytest.mark.long

I8 = np.array([100, -128, 127, 3, -3, 100, 90, -100], np.int8)


I32 = np.array([100000, -(2**31), 2**31 - 1, 3, -70000, 5, 9, 100000], np.int32)


U32 = np.array([1000, 2**32 - 1, 0, 3, 70000, 5, 9, 2**31], np.uint32)


F16 = np.array([1.5, -2, 0, 3, 60000, 2, 300, -7], np.float16)


BOOL = I8 > 3


LARGE = 2**53 + np.array([1, 0, 1, 0, 1, 0, 1, 0])


@pytest.mark.parametrize("x", [I8, I32, U32, BOOL], ids=lambda x: x.dtype.name)
def test_narrow_types_in_averages_and_tolerances(client, x):
    check(
        client,
        x,
        (
            lambda _, h: np.average(h, weights=h),
            lambda _, h: np.average(h.reshape(4, 2), axis=1, weights=[1, 3], returned=True),
            lambda _, h: np.average(h, weights=np.ones(8, np.float16)),
            lambda _, h: np.isclose(h, h[::-1]),
            lambda _, h: np.isclose(h, 300),
            lambda _, h: np.isclose(h, True),
            lambda _, h: np.isclose(3, h),
            lambda _, h: np.allclose(h, h[::-1]),
            lambda _, h: np.array_equal(h, h, equal_nan=True),
        ),
    )


def test_integers_that_are_equal_in_float64(client):
    check(
        client,
        LARGE,
        (
            lambda _, h: np.array_equal(h, h[::-1], equal_nan=True),
            lambda _, h: np.lexsort((X[::-1] % 3, h)),
            lambda _, h: np.lexsort((h, X % 3)),
        ),
    )


def test_types_of_all_operands_together(client):
    check(
        client,
        U8,
        (
            lambda _, h: np.select([h > 250, h > 40], [h.astype("i8"), h.astype("i1")], 300),
            lambda _, h: np.select([h > 250], [h.astype("f4")], np.float64(0.1)),
            lambda _, h: np.select([h > 250, h > 40], [h.astype("f8"), h.astype("f2")], 70000.0),
            lambda _, h: np.select([h > 40], [h], 2.5),
            lambda _, h: np.clip(h.astype("f2"), h.astype("f8"), 70000.0),
            lambda _, h: np.clip(h > 3, h.astype("i1"), 100),
            lambda _, h: np.clip(3, h, 100),
            lambda _, h: np.clip(h, -5, 300),
            lambda _, h: np.clip(h, 300, 400),
            lambda _, h: np.nan_to_num(h.astype("f4"), nan=np.float64(1)),
            lambda _, h: np.heaviside(0, h),
            lambda _, h: np.heaviside(h, np.float64(0.5)),
            lambda _, h: np.heaviside(h, 1),
            lambda _, h: np.histogram(h, 2, weights=h),
            lambda _, h: np.linspace(h.astype("f4"), 7, 3),
            lambda _, h: np.concatenate([h, h.astype("i1"), h.astype("f2")]),
        ),
    )


@pytest.mark.parametrize("x", [U8, F16], ids=lambda x: x.dtype.name)
def test_numbers_in_products(client, x):
    check(
        client,
        x,
        (
            lambda _, h: np.dot(h, 2),
            lambda _, h: np.dot(-3, h),
            lambda _, h: np.dot(h, 0.1),
            lambda _, h: h.dot(True),
            lambda _, h: np.inner(h, 2),
            lambda _, h: np.outer(h, [1, -3]),
            lambda _, h: np.kron(h, 2),
            lambda _, h: np.tensordot(h, -3, 0),
            lambda _, h: np.einsum("i,->i", h, 0.1),
            lambda _, h: np.convolve(h, 2),
            lambda _, h: np.matmul(h, [1] * 8),
            lambda _, h: np.linalg.multi_dot([h.reshape(2, 4), h[:4]]),
        ),
    )


def _changed(copied: Case) -> Case:
    """Returns what was made of an array whose elements are then assigned to, and the array after that of the copy."""

    def case(xp: Any, h: Any) -> Any:
        array = copied(xp, h)
        h[...] = 5
        before = array + 0
        array[0] = 7
        return before, h

    return case


def test_copies_keep_their_values(client):
    copies: tuple[Case, ...] = (
        lambda xp, h: xp.array(h),
        lambda xp, h: xp.array(h, copy=True),
        lambda xp, h: xp.array(h, dtype=float),
        lambda xp, h: xp.asarray(h, copy=True),
        lambda _, h: np.array(h, like=h),
        lambda _, h: np.asarray(h, like=h, copy=True),
        lambda _, h: np.astype(h, float),
        lambda _, h: np.copy(h),
        lambda _, h: h.flatten(),
        lambda _, h: np.reshape(h, 8, copy=True),
        lambda _, h: np.positive(h),
    )
    no_copies: tuple[Case, ...] = (
        lambda xp, h: xp.array(h, copy=None),
        lambda xp, h: xp.array(h, copy=False),
        lambda xp, h: xp.asarray(h),
        lambda _, h: np.array(h, like=h, copy=False),
        lambda _, h: np.astype(h, float, copy=False),
        lambda _, h: np.atleast_1d(h),
    )
    check(client, X, [_changed(function) for function in (*copies, *no_copies)])


@pytest.mark.parametrize("axis", [0, -1, 1, None])
def test_arrays_without_axes(client, axis):
    check(
        client,
        Z,
        (
            lambda _, z: np.argsort(z, axis=axis),
            lambda _, z: np.argpartition(z, 0, axis=axis),
            lambda _, z: np.sort(z, axis=axis),
            lambda _, z: np.squeeze(z, axis=axis),
            lambda _, z: np.repeat(z, 2, axis=axis),
            lambda _, z: np.repeat(z, [2], axis=axis),
            lambda _, z: np.take(z, [0, 0], axis=axis),
            lambda _, z: np.take(z, 0, axis=axis),
            lambda _, z: np.compress([True], z, axis=axis),
            lambda _, z: np.lexsort((z, z), axis=axis),
            lambda _, z: np.lexsort((z, z > 1), axis=axis),
            lambda _, z: np.cumulative_sum(z, axis=axis, include_initial=True),
            lambda _, z: np.cumulative_prod(z, axis=axis),
            lambda _, z: np.size(z, axis),
            lambda _, z: np.average(z, axis=axis, weights=z),
            lambda _, z: np.linalg.norm(z, axis=axis),
            lambda _, z: np.linalg.vector_norm(z, axis=axis),
            lambda _, z: np.trapezoid(z, axis=1),
            lambda _, z: np.swapaxes(z, axis, 0),
        ),
    )


def _assigned(key: Callable[[Any], Any], values: Any) -> Case:
    def case(_: Any, h: Any) -> Any:
        h[key(h)] = values
        return h

    return case


def test_what_numpy_refuses(client):
    check(
        client,
        X,
        (
            lambda _, h: np.searchsorted(h, 3, sorter=[0, 1]),
            lambda _, h: np.searchsorted(h, 3, sorter=X),
            lambda _, h: np.searchsorted(h, 3, sorter=0),
            lambda _, h: np.linalg.multi_dot([h.reshape(2, 4), h[:4], h.reshape(2, 4)]),
            lambda _, h: np.linalg.multi_dot([h.reshape(2, 4), h.reshape(1, 4, 2), h.reshape(2, 4)]),
            lambda _, h: np.linalg.matrix_power(h[:4].reshape(2, 2), 1.0),
            lambda _, h: np.linalg.lstsq(h.reshape(2, 4), h)[0],
            lambda _, h: np.linalg.cond(h.reshape(2, 4), 1),
            lambda _, h: np.linalg.norm(h, axis="a"),
            lambda _, h: np.linalg.norm(h, axis=5),
            lambda _, h: np.linalg.matrix_norm(h),
            _assigned(lambda h: h > 3, np.ones((1, 4))),
            _assigned(lambda h: h > 3, np.ones((4, 1))),
            _assigned(lambda h: h > 3, np.ones(3)),
            lambda _, h: np.ravel(h, order="Z"),
            lambda _, h: h.ravel(order="Z"),
            lambda _, h: h.copy(order="Z"),
            lambda _, h: np.reshape(h, 8, order=1),
            lambda _, h: np.zeros_like(h, order="Z"),
            lambda _, h: np.add(h, 1, order="Z"),
            lambda _, h: np.add(h, 1, casting="Z"),
            lambda _, h: np.cov(h, dtype=int),
            lambda _, h: np.nanvar(h, dtype=int),
            lambda _, h: np.einsum("i->", h, dtype=int),
            lambda _, h: np.select([h > 1], [2], h.astype("u1")),
            lambda _, h: np.sort(h, order="x"),
            lambda _, h: np.sort(h, kind="Z"),
            lambda _, h: np.partition(h, 1, kind="quicksort"),
            lambda _, h: np.isin(h, [1], kind="Z"),
            lambda _, h: np.partition(h, 1.0),
            lambda _, h: np.argpartition(h, True),
            lambda _, h: np.repeat(h, np.array([2.0])),
            lambda _, h: np.take(h, np.array([1.0])),
            lambda _, h: np.take_along_axis(h, h, 0),
            lambda _, h: np.split(h, [2.5]),
            lambda _, h: np.bincount(h.astype(int), minlength=1.5),
            lambda _, h: np.median(h, axis=0.0),
            lambda _, h: np.quantile(h, 1j),
            lambda _, h: np.round(h, 1.5),
            lambda _, h: np.round(h > 1, 1),
            lambda _, h: np.ediff1d(h > 1),
            lambda _, h: np.tensordot(h, h, axes=([0], [1])),
            lambda _, h: np.linspace(h[0], 1, 3, axis=1),
            lambda _, h: np.expand_dims(h, None),
            lambda _, h: np.cov(h, aweights=np.ones((2, 4))),
            lambda _, h: np.cov(h, aweights=[1, 2]),
            lambda _, h: np.cov(h, aweights=-np.ones(8)),
            lambda _, h: np.cov(h, fweights=np.ones(8) / 2),
            lambda _, h: np.average(h, axis=3),
            lambda _, h: np.size(h, 1),
            lambda _, h: np.pad(h, []),
            lambda _, h: np.lexsort((h, h.reshape(2, 4) > 3)),
            lambda _, h: np.lexsort((h, h), axis=1),
        ),
    )


def test_what_numpy_accepts(client):
    check(
        client,
        X,
        (
            lambda _, h: np.searchsorted(h[::-1], [2.5, 3], sorter=np.arange(7, -1, -1)),
            lambda _, h: np.take(h, []),
            lambda _, h: np.take(h, [True, False]),
            lambda _, h: np.take(h, h[:3] > 1),
            lambda _, h: np.repeat(h, 2.0),
            lambda _, h: np.take_along_axis(h.reshape(2, 4), np.array([5, 1]), None),
            lambda _, h: np.ravel(h, order="K"),
            lambda _, h: np.sort(h, kind="heapsort"),
            lambda _, h: np.partition(h, 1, kind="introselect"),
            lambda _, h: np.size(h.reshape(2, 4), (0, 1)),
            lambda _, h: np.full_like(h.astype(int), 1.5),
            _assigned(lambda h: h > 3, np.full(4, 9.0)),
            _assigned(lambda h: h > 3, [9.0]),
        ),
    )

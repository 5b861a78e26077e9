"""Types, multiplication and summation, for all kernels that compute products.

A product is summed up in its *sum type*: float32 for floats of 16 bits and less, a float32 count of true
products for bool (an or of ands is a count above zero), the result's own type for all others, in which
integers wrap. Sums of partial products over devices are sums of that type too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.functions.contraction import STRETCHED, Contraction, Labels
from shardcall_core.layouts.layout import required
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import index_type, mask_from
from shardcall_server.kernels.core.kernel import Problem, Program

QUICK_FLOPS = 1e11
"""The operations up to which the strategies of a product are timed."""


def empty_sum(problem: Problem, terms: int | None = None) -> Program | None:
    """Returns the program for a result without elements or sums without terms; None for any other result.

    Args:
        terms: the number of terms of a sum; by default the number of rows of rhs.
    """
    (result,), shape = problem.results, problem.padded_result()
    if 0 in result.shape or (required(problem.operands[1]).shape[0] if terms is None else terms) == 0:
        return lambda *_: (jnp.zeros(shape, result.dtype),)
    return None


def sum_type(dtype: np.dtype) -> np.dtype:
    """Returns the type in which products of a result type are summed up."""
    return np.dtype(np.float32) if dtype == np.bool_ else element_types.working_type(dtype)


def multiply(lhs: jax.Array, rhs: jax.Array, dtype: np.dtype) -> jax.Array:
    """Returns ``lhs @ rhs`` of arrays of rank 1 or 2 for a result of type ``dtype``, in its sum type."""
    return _dot(*_factors(lhs, rhs, dtype), (((lhs.ndim - 1,), (0,)), ((), ())), dtype)


def contract(arrays: Sequence[jax.Array], contraction: Contraction, out_labels: Labels, dtype: np.dtype) -> jax.Array:
    """Returns the contraction of arrays, or of a device's blocks, for a result of type ``dtype``, in its sum type.

    Args:
        arrays: one per operand; its axes of one label are of one size, stretched ones of size 1.
        contraction: the labels that are matched, and those that are summed over.
        out_labels: the labels of the result's axes, in order.
        dtype: the element type of the result.
    """
    factors, labels = zip(*map(_diagonals, arrays, contraction.labels), strict=True)
    if len(factors) == 1:
        return _transpose(*_sum_alone(factors[0], labels[0], out_labels, dtype), out_labels)
    lhs, rhs = labels
    if set(lhs) - set(rhs) - set(out_labels) or set(rhs) - set(lhs) - set(out_labels):
        (left, lhs), (right, rhs) = (
            _sum_alone(factor, of, {*other, *out_labels}, dtype)
            for factor, of, other in ((factors[0], lhs, rhs), (factors[1], rhs, lhs))
        )
    else:
        left, right = _factors(factors[0], factors[1], dtype)
    if out_labels and out_labels[0] in rhs and out_labels[0] not in lhs:
        # In this order of the factors, a product that is scattered by columns needs no transposition.
        left, right, lhs, rhs = right, left, rhs, lhs
    batch = [label for label in out_labels if label in lhs and label in rhs]
    contracting = [label for label in lhs if label in rhs and label not in out_labels]
    dimensions = tuple(
        tuple(tuple(of.index(label) for label in shared) for of in (lhs, rhs)) for shared in (contracting, batch)
    )
    product_labels = (
        *batch,
        *(label for of in (lhs, rhs) for label in of if label not in batch and label not in contracting),
    )
    return _transpose(_dot(left, right, cast(lax.DotDimensionNumbers, dimensions), dtype), product_labels, out_labels)


def _diagonals(array: jax.Array, labels: Labels) -> tuple[jax.Array, Labels]:
    """Returns the array without stretched axes, and with the diagonal where it has a label more than once."""
    kept = [i for i, label in enumerate(labels) if label != STRETCHED]
    array = lax.squeeze(array, [i for i in range(array.ndim) if i not in kept])
    labels = tuple(labels[i] for i in kept)
    for label in [label for label in dict.fromkeys(labels) if labels.count(label) > 1]:
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            array = moved(partial(jnp.diagonal, axis1=first, axis2=second), array)
            labels = (*labels[:first], *labels[first + 1 : second], *labels[second + 1 :], label)
    return array, labels


def _sum_alone(array: jax.Array, labels: Labels, kept: Collection[str], dtype: np.dtype) -> tuple[jax.Array, Labels]:
    """Sums over the labels that are not kept, in the sum type of ``dtype``."""
    total = sum_type(dtype)
    wide = array.astype(total) if dtype == np.bool_ else element_types.widen(array, dtype)
    axes = tuple(i for i, label in enumerate(labels) if label not in kept)
    summed = jnp.sum(wide, axes, dtype=total) if axes else wide
    return summed, tuple(label for label in labels if label in kept)


def _transpose(array: jax.Array, labels: Labels, out_labels: Labels) -> jax.Array:
    return array if labels == out_labels else lax.transpose(array, [labels.index(label) for label in out_labels])


def _factors(lhs: jax.Array, rhs: jax.Array, dtype: np.dtype) -> tuple[jax.Array, jax.Array]:
    """Returns the factors as they are multiplied; products of two floats of 16 bits are exact in float32."""
    total = sum_type(dtype)
    if dtype == np.bool_:
        return lhs.astype(total), rhs.astype(total)
    if lhs.dtype == rhs.dtype and element_types.is_narrow_float(lhs.dtype) and total == np.float32:
        return lhs, rhs
    return element_types.widen(lhs, dtype), element_types.widen(rhs, dtype)


def _dot(lhs: jax.Array, rhs: jax.Array, dimensions: lax.DotDimensionNumbers, dtype: np.dtype) -> jax.Array:
    """Returns the sums of products of factors, in the sum type of ``dtype``.

    Full precision is requested, since a GPU's default for float32 keeps 10 bits of the factors. Integers of up to 32
    bits are multiplied as int32, for which XLA:CPU has a fast product; the result modulo 2³² is the same.
    """
    preferred = total = sum_type(dtype)
    if total.kind in "iu" and total.itemsize <= 4:
        preferred = np.dtype(np.int32)
        if total != np.int8:
            lhs, rhs = lhs.astype(preferred), rhs.astype(preferred)
    product = lax.dot_general(lhs, rhs, dimensions, precision=lax.Precision.HIGHEST, preferred_element_type=preferred)
    return product.astype(total)


def finish(total: jax.Array, dtype: np.dtype) -> jax.Array:
    """Converts sums of sum type to elements of the result."""
    return total > 0 if dtype == np.bool_ else element_types.narrow(total, dtype)


def mask_label(
    arrays: Sequence[jax.Array], contraction: Contraction, label: str, length: jax.Array | int
) -> list[jax.Array]:
    """Zeroes the elements of all arrays at ``length`` and beyond along the axes of a label."""
    masked = list(arrays)
    for i, labels in enumerate(contraction.labels):
        for axis in [axis for axis, other in enumerate(labels) if other == label]:
            masked[i] = mask_from(masked[i], axis, length)
    return masked


def rows_here(length: int, axis_names: tuple[str, ...], block: int) -> jax.Array:
    """Returns the number of ``length`` rows in this device's block or after it; below 1, the block is all padding."""
    return length - lax.axis_index(axis_names).astype(index_type(length + block)) * block


def scatter_sum(total: jax.Array, axis: int, axis_names: tuple[str, ...], devices: int) -> jax.Array:
    """Sums partial products over mesh axes and leaves each device its block along an axis.

    Args:
        total: a device's part of every sum.
        axis: the axis to shard, of size L.
        axis_names: the mesh axes summed over.
        devices: the number of devices along them.

    Returns:
        As ``total``, with B = ceil(L / devices) along the axis.
    """
    padding = [(0, -n % devices if i == axis else 0, 0) for i, n in enumerate(total.shape)]
    padded = lax.pad(total, jnp.zeros((), total.dtype), padding)
    scattered: jax.Array = lax.psum_scatter(padded, axis_names, scatter_dimension=axis, tiled=True)
    return scattered

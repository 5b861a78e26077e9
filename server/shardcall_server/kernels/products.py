"""What the product kernels share: how lhs and rhs meet, and how blocks are multiplied and summed up.

A product is summed up in its *sum type*: float32 for floats of 16 bits and less, a float32 count of true
products for bool (an or of ands is a count above zero), the result's own type for all others, in which
integers wrap. Sums of partial products over devices are sums of that type too.
"""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.kernels import element_types
from shardcall_server.kernels.blocks import index_type, mask_from
from shardcall_server.kernels.kernel import Problem, Program
from shardcall_server.kernels.layout import ArrayType


def product_type(lhs: ArrayType, rhs: ArrayType) -> ArrayType:
    """The result of ``lhs @ rhs``: `np.matmul`'s shape, `np.result_type`'s element type.

    Args:
        lhs: [K] or [M, K].
        rhs: [K] or [K, N].

    Raises:
        CallError: for other ranks, contracting axes of two sizes, and element types that do not meet.
    """
    for name, operand in (("lhs", lhs), ("rhs", rhs)):
        if operand.ndim not in (1, 2):
            raise CallError(
                Reason.INVALID_OPERAND,
                f"{name} is {shorten(str(operand))}, of rank {operand.ndim}; give an array of rank 1 or 2"
                + ("" if operand.ndim else "; to scale an array, multiply it where it is"),
                field=name,
            )
    (*rows, contracting), (rhs_contracting, *columns) = lhs.shape, rhs.shape
    if contracting != rhs_contracting:
        raise CallError(
            Reason.INVALID_OPERAND,
            f"lhs has shape {lhs.shape} and rhs {rhs.shape}; the last axis of lhs ({contracting}) and the first "
            f"of rhs ({rhs_contracting}) are summed over and must be of one size",
            field="rhs",
        )
    dtype = element_types.common_type(("lhs", "rhs"), (lhs, rhs))
    return ArrayType((*rows, *columns), dtype)


def empty_sum(problem: Problem) -> Program | None:
    """The program for a result without elements or a contracting axis of size 0; None where there is work."""
    (result,), shape = problem.results, problem.padded_result()
    if 0 in result.shape or cast(ArrayType, problem.operands[1]).shape[0] == 0:
        return lambda *_: (jnp.zeros(shape, result.dtype),)
    return None


def sum_type(dtype: np.dtype) -> np.dtype:
    """The type in which products of a result type are summed up."""
    return np.dtype(np.float32) if dtype == np.bool_ else element_types.working_type(dtype)


def multiply(lhs: jax.Array, rhs: jax.Array, dtype: np.dtype) -> jax.Array:
    """``lhs @ rhs`` for a result of type ``dtype``, in its sum type.

    Full precision is asked for: a GPU's default for float32 keeps 10 bits of the factors. Integers of up to 32
    bits are multiplied as int32, modulo 2³² all the same, for which XLA:CPU has a fast product.
    """
    total = sum_type(dtype)
    if dtype == np.bool_:
        lhs, rhs = lhs.astype(total), rhs.astype(total)
    elif element_types.is_narrow_float(dtype):
        lhs, rhs = (a if lhs.dtype == rhs.dtype else element_types.widen(a, dtype) for a in (lhs, rhs))
    else:
        lhs, rhs = element_types.widen(lhs, dtype), element_types.widen(rhs, dtype)
    preferred = total
    if total.kind in "iu" and total.itemsize <= 4:
        preferred = np.dtype(np.int32)
        if total != np.int8:
            lhs, rhs = lhs.astype(preferred), rhs.astype(preferred)
    contracting = ((lhs.ndim - 1,), (0,))
    product = lax.dot_general(
        lhs,
        rhs,
        (contracting, ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=preferred,
    )
    return product.astype(total)


def finish(total: jax.Array, dtype: np.dtype) -> jax.Array:
    """Sums of sum type as elements of the result."""
    return total > 0 if dtype == np.bool_ else element_types.narrow(total, dtype)


def mask_contracting(lhs: jax.Array, rhs: jax.Array, length: jax.Array | int) -> tuple[jax.Array, jax.Array]:
    """Zeroes what both hold at ``length`` and beyond along the contracting axis."""
    return mask_from(lhs, lhs.ndim - 1, length), mask_from(rhs, 0, length)


def rows_here(length: int, axis_names: tuple[str, ...], block: int) -> jax.Array:
    """How many of ``length`` lie in this device's block and behind it; below 1 the block is all padding."""
    return length - lax.axis_index(axis_names).astype(index_type(length + block)) * block


def scatter_sum(total: jax.Array, axis: int, axis_names: tuple[str, ...], devices: int) -> jax.Array:
    """Sums partial products over mesh axes and leaves each device its block along an axis.

    Args:
        total: a device's part of every sum.
        axis: the axis to split, of size L.
        axis_names: the mesh axes summed over.
        devices: their size.

    Returns:
        As ``total``, with B = ceil(L / devices) along the axis.
    """
    padding = [(0, -n % devices if i == axis else 0, 0) for i, n in enumerate(total.shape)]
    padded = lax.pad(total, jnp.zeros((), total.dtype), padding)
    scattered: jax.Array = lax.psum_scatter(padded, axis_names, scatter_dimension=axis, tiled=True)
    return scattered

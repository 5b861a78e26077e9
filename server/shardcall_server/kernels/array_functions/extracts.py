"""The strategy ``exchange`` of rows of the table that take few elements: each device sends those that it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.functions import layout_rules
from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.exchanged_axes import can_exchange
from shardcall_server.kernels.array_functions.exchanges import TOO_MANY, others, sharded_axes
from shardcall_server.kernels.array_functions.row import LocalSpecs, ResultBlock, RowExchange, call_of
from shardcall_server.kernels.core.bits import from_parts, parts_of
from shardcall_server.kernels.core.element_types import narrow, widen
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.numerics.ordering import truth


def _sum_of_local(
    array: jax.Array, is_local: jax.Array, take: Callable[[jax.Array], jax.Array], names: tuple[str, ...]
) -> jax.Array:
    """Returns, on all devices, elements of which each is on one device, by a sum to which the others add zeros."""
    parts = [jnp.where(is_local, take(part), jnp.zeros((), part.dtype)) for part in parts_of(array)]
    return from_parts([lax.psum(part, names) if names else part for part in parts], np.dtype(array.dtype))


def _diagonal_specs(problem: Problem) -> LocalSpecs | str:
    spec, call = required(problem.in_specs[0]), call_of(problem)
    axes = layout_rules.diagonal_axes(call.x, call.parameters)
    kept = tuple(names for i, names in enumerate(spec) if i not in axes)
    return LocalSpecs((spec,), (*kept, *[()] * (len(call.shape) - len(kept))))


def _local_diagonal(problem: Problem, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, tuple[str, ...]]:
    """Returns the block of x with the axes of the matrices last, and the positions of the diagonals in it.

    Returns:
        The block [..., rows, columns]; the indices in it [2, count]; bool [count], True for those inside the block; the
        mesh axes of the rows and columns.
    """
    call = call_of(problem)
    axes = layout_rules.diagonal_axes(call.x, call.parameters)
    alongs = [sharded_axes(problem)[axis] for axis in axes]
    rows, columns = (along.rows for along in alongs)
    offset = max(-rows, min(call["offset"], columns))
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    indices, is_local = [], jnp.ones((count,), bool)
    for along, first in zip(alongs, (max(-offset, 0), max(offset, 0)), strict=True):
        index = jnp.arange(first, first + count) - jnp.asarray(along.index(), np.int64) * along.block
        is_local &= (index >= 0) & (index < along.block)
        indices.append(jnp.clip(index, 0, max(along.block - 1, 0)))
    names = tuple(name for along in alongs for name in along.axis_names)
    return jnp.moveaxis(x, axes, (-2, -1)), jnp.stack(indices), is_local, names


def _diagonal(problem: Problem, _: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    matrices, (row, column), is_local, names = _local_diagonal(problem, required(operands[0]))
    return _sum_of_local(matrices, is_local, lambda part: part[..., row, column], names)


def _trace(problem: Problem, block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    matrices, (row, column), is_local, names = _local_diagonal(problem, required(operands[0]))
    diagonal = matrices[..., row, column]
    if block.dtype == np.bool_:
        are = jnp.any(truth(diagonal) & is_local, axis=-1)
        is_any: jax.Array = lax.psum(are.astype(np.int32), names) > 0
        return is_any
    wide = widen(diagonal, block.dtype)
    sums = jnp.sum(jnp.where(is_local, wide, jnp.zeros((), wide.dtype)), axis=-1, dtype=wide.dtype)
    return narrow(lax.psum(sums, names), block.dtype)


DIAGONAL = RowExchange("Each device sends the elements of the diagonals that it has.", _diagonal_specs, _diagonal)
TRACE = RowExchange("Each device adds up the elements that it has, and the sums are added.", _diagonal_specs, _trace)


def _take_specs(problem: Problem) -> LocalSpecs | str:
    x_spec, spec = map(required, problem.in_specs)
    x, indices, axis = required(problem.operands[0]), required(problem.operands[1]), problem.parameters.axis
    if axis is None and x.ndim != 1:
        return "x is flattened, and it serves one axis"
    axis = axis or 0
    if any(set(names) & {name for of_x in x_spec for name in of_x} for names in spec):
        return "x and the indices are sharded over the same mesh axes"
    taken = -(-math.prod(indices.shape) // max(1, problem.mesh.size([name for names in spec for name in names])))
    if taken > sharded_axes(problem)[axis].block and can_exchange(problem, others((axis,), x.ndim)):
        return TOO_MANY
    if 2 * taken > x.shape[axis]:
        return f"each device takes {taken} of {x.shape[axis]} rows, and it serves fewer than half of them"
    return LocalSpecs((x_spec, spec), (*x_spec[:axis], *spec, *x_spec[axis + 1 :]))


def _along_specs(problem: Problem) -> LocalSpecs | str:
    (x_spec, spec), axis = map(required, problem.in_specs), problem.parameters.axis
    x, indices = required(problem.operands[0]), required(problem.operands[1])
    result = [names or more for names, more in zip(x_spec, spec, strict=True)]
    result[axis] = ()
    for i in range(x.ndim):
        if spec[axis] or (i != axis and (x.shape[i] != indices.shape[i] or (spec[i] and spec[i] != x_spec[i]))):
            return "the indices are sharded otherwise than x, or broadcast, and it serves indices that are sharded as x"
    if 2 * indices.shape[axis] > x.shape[axis]:
        return f"{indices.shape[axis]} of {x.shape[axis]} rows are taken, and it serves fewer than half of them"
    return LocalSpecs((x_spec, tuple(result)), tuple(result))


def local_indices(problem: Problem, valid: jax.Array) -> tuple[jax.Array, jax.Array, tuple[str, ...]]:
    """Returns indices relative to the device's block, a mask of those inside it, and the mesh axes of the axis."""
    along = sharded_axes(problem)[problem.parameters.axis or 0]
    index = valid - jnp.asarray(along.index(), np.int64) * along.block
    is_local = (index >= 0) & (index < along.block)
    return jnp.clip(index, 0, max(along.block - 1, 0)), is_local, along.axis_names


def take_of(valid: Callable[[jax.Array, int], jax.Array]) -> RowExchange:
    """Returns the strategy of `take`, from a function that counts indices of an axis from its first element."""

    def body(problem: Problem, block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
        (x, indices), axis = map(required, operands), block["axis"] or 0
        index, is_local, names = local_indices(problem, valid(indices, block.call.x[axis]))
        behind = x.ndim - axis - 1
        is_local = is_local.reshape((*is_local.shape, *[1] * behind))
        return _sum_of_local(x, is_local, lambda part: jnp.take(part, index, axis=axis, mode="clip"), names)

    return RowExchange("Each device sends the elements that it has.", _take_specs, body)


def along_of(valid: Callable[[jax.Array, int], jax.Array]) -> RowExchange:
    """Returns the strategy of `take_along_axis`, from such a function."""

    def body(problem: Problem, block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
        (x, indices), axis = map(required, operands), block["axis"]
        index, is_local, names = local_indices(problem, valid(indices, block.call.x[axis]))
        take = lambda part: jnp.take_along_axis(part, index, axis, mode="clip")  # noqa: E731
        return _sum_of_local(x, is_local, take, names)

    return RowExchange("Each device sends the elements that it has.", _along_specs, body)

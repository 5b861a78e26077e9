"""Running sums of an array on one device.

The algorithm is for XLA:CPU, whose own running sum, a tree of reduce-windows, takes as long as 4 to 14 copies of
the array. A loop that adds each row to the next takes little longer than one copy, if an iteration adds enough
elements, which `_rows_per_iteration` and `_folds` ensure. Over 8 devices, `block_scan` of 4096² takes 25 ms, as on one
device, and an elementwise pass 11. On other platforms XLA's own running sum is used.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from shardcall_server.kernels.core.blocks import fit, index_type, pad_axis, rows

SMALL = 1 << 14
"""The number of elements up to which XLA's own running sum is used, since a loop would not pay."""

WIDE = 1 << 9
"""The minimum number of elements for an iteration of the loop, whose overhead costs about as much."""

CHUNK = 16
"""The rows of an iteration where rows are short, so that adjacent elements are used together."""


def running_sum(array: jax.Array, axis: int, initial: jax.Array, *, looped: bool) -> jax.Array:
    """Returns the running sum along an axis, in the array's own type.

    Args:
        array: [..., n, ...] the summands.
        axis: the axis of n.
        initial: [..., 1, ...] the sum before the first row.
        looped: True to sum large arrays by a loop, which is fastest on CPU.

    Returns:
        [..., n, ...] ``initial + np.cumsum(array, axis)``.
    """
    if not looped or array.size <= SMALL:
        return lax.cumsum(array, axis) + initial
    shape, n = array.shape, array.shape[axis]
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    folds = _folds(outer, n, inner)
    length = -(-n // folds)
    if length * folds != n:
        array = fit(array, (*shape[:axis], length * folds, *shape[axis + 1 :]))
    folded = array.reshape(outer, folds, length, inner)
    before = initial.reshape(outer, 1, inner)
    if folds > 1:
        before = before + exclusive(lax.cumsum(folded.sum(2, dtype=array.dtype), 1), 1)
    lanes = _loop(folded.reshape(outer * folds, length, inner), before.reshape(outer * folds, 1, inner))
    return rows(lanes.reshape(*shape[:axis], length * folds, *shape[axis + 1 :]), 0, n, axis)


def tree_sum(array: jax.Array, axis: int) -> jax.Array:
    """Returns the running sum along an axis as a tree of sums, which the compiler can partition.

    From `lax.cumsum` along a sharded axis the compiler makes one reduce-window over the gathered array: 34 s for 2048 ×
    2048 float64 on 8 CPU devices, where this takes 0.04 (jax 0.10.2; 0.10.1 does the same).
    """
    summed: jax.Array = (
        lax.cumsum(array, axis) if array.size <= SMALL else lax.associative_scan(jnp.add, array, axis=axis)
    )
    return summed


def total(array: jax.Array, axis: int) -> jax.Array:
    """Returns the sum along an axis, in the array's own type.

    Real floating-point numbers are multiplied by ones where no axis comes before: XLA:CPU then only reads, 128 MiB in
    5.5 ms instead of 9, 8 devices on two cores. A complex infinity times one would be NaN.
    """
    if array.dtype.kind != "f" or math.prod(array.shape[:axis]) != 1:
        return array.sum(axis, dtype=array.dtype)
    rest = array.shape[axis + 1 :]
    matrix = array.reshape(array.shape[axis], math.prod(rest))
    product = jnp.matmul(jnp.ones(len(matrix), array.dtype), matrix, precision=lax.Precision.HIGHEST)
    return product.reshape(*array.shape[:axis], *rest)


def exclusive(sums: jax.Array, axis: int) -> jax.Array:
    """Returns the exclusive running sum of an inclusive one."""
    return pad_axis(sums, axis, 1, -1)


def _folds(outer: int, n: int, inner: int) -> int:
    # The number of parts of the axis that are summed side by side, so that an iteration adds WIDE elements.
    lanes, longest = outer * inner, max(1, n // (4 * CHUNK))
    return min(-(-WIDE // lanes), longest)


def _rows_per_iteration(inner: int) -> int:
    return CHUNK if inner < 4 * CHUNK else 1


def _loop(lanes: jax.Array, before: jax.Array) -> jax.Array:
    # [outer, n, inner], [outer, 1, inner] → [outer, n, inner]. The loop reads summands from `lanes` and not from the
    # buffer of the sums: jax 0.10.1 updates that in place in a fusion that reads the rows it has just written.
    n = lanes.shape[1]
    step = min(_rows_per_iteration(lanes.shape[2]), n)

    def add(sums: jax.Array, start: int | jax.Array, count: int, before: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice_in_dim(sums, _within(rows(lanes, start, count, 1)) + before, start, 1)

    def iteration(i: jax.Array, sums: jax.Array) -> jax.Array:
        start = i * step
        return add(sums, start, step, rows(sums, start - 1, 1, 1))

    iterations = n // step
    index = index_type(n)
    sums = add(jnp.zeros_like(lanes), 0, step, before)
    sums = lax.fori_loop(index.type(1), index.type(iterations), iteration, sums)
    left = n - iterations * step
    return add(sums, n - left, left, rows(sums, n - left - 1, 1, 1)) if left else sums


def _within(chunk: jax.Array) -> jax.Array:
    # [outer, count, inner]; the sum of all shifts, which XLA fuses into one pass.
    sums = chunk
    for shift in range(1, chunk.shape[1]):
        sums = sums + pad_axis(chunk, 1, shift, -shift)
    return sums
